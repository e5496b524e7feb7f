-- The SQL of the PostgreSQL engine. The same names, in the same order, as ../sqlite/statements.sql.
-- A statement given a batch takes it as one JSON parameter, :batch. {now} is the server's moment of the
-- statement. Written for READ COMMITTED: what decides is locked first, or checked by the UPDATE itself.

-- name: insert
-- Add jobs; one whose id is there, or whose key is live, is left out. A single one comes as plain parameters,
-- which is a fifth quicker; one queue can be hinted at by the way.
WITH made AS (                                                                                          --? hint
INSERT INTO {schema}.jobs
       (id, type, queue, status, priority, rank, key, entity_type, entity_id,
        schedule, due_at, expires_at,                                                                   --? special
        max_attempts, timeout, created_at, updated_at, run_at, payload)
SELECT id, type, queue,
       CASE WHEN COALESCE(run_at, {now} + delay * interval '1 microsecond') > {now} THEN 'scheduled' ELSE 'pending' END,
       priority,
       -priority,                                                                                       --? plain
       CASE WHEN aging IS NULL THEN -priority                                                           --? special
            ELSE (extract(epoch FROM COALESCE(run_at, {now} + delay * interval '1 microsecond')) * 1000000)::bigint --? special
                 - priority * aging END,                                                                --? special
       key, entity_type, entity_id,
       schedule,                                                                                        --? special
       CASE WHEN schedule IS NOT NULL THEN COALESCE(run_at, {now} + delay * interval '1 microsecond') END, --? special
       {now} + expires * interval '1 microsecond',                                                      --? special
       max_attempts, timeout, {now}, {now}, COALESCE(run_at, {now} + delay * interval '1 microsecond'), payload::json
  FROM json_to_recordset(:batch::json)                                                                  --? many
    AS new (id uuid, type text, queue text, priority bigint, key text, entity_type text, entity_id text, --? many
            schedule text, aging bigint, expires bigint,                                                --? many
            max_attempts integer, timeout double precision, run_at timestamptz, delay bigint, payload text) --? many
  FROM (VALUES (:id::text::uuid, :type::text, :queue::text, :priority::bigint, :key::text,              --? one
                :entity_type::text, :entity_id::text, :schedule::text, :aging::bigint, :expires::bigint, --? one
                :max_attempts::integer, :timeout::double precision, :run_at::text::timestamptz,         --? one
                :delay::bigint, :payload::text))                                                        --? one
    AS new (id, type, queue, priority, key, entity_type, entity_id, schedule, aging, expires,           --? one
            max_attempts, timeout, run_at, delay, payload)                                              --? one
ON CONFLICT DO NOTHING
RETURNING id::text, status, created_at, run_at
)                                                                                                       --? hint
SELECT made.*, pg_notify('{schema}_wake', :hint::text)                                                  --? hint
  FROM made                                                                                             --? hint
;

-- name: insert_payloads
-- Nothing to do: here they are in the row, and TOAST keeps large ones apart.
SELECT 1;

-- name: wake
-- Hint at queues, when the transaction commits; a name and nothing else.
SELECT pg_notify('{schema}_wake', queue)
  FROM json_array_elements_text(:queues::json) AS queue;

-- name: present
-- Which of these ids exist.
SELECT id::text
  FROM {schema}.jobs
 WHERE id = ANY(ARRAY(SELECT json_array_elements_text(:ids::json)::uuid));

-- name: holder
-- The live job that holds a key.
SELECT id::text, status
  FROM {schema}.jobs
 WHERE type = :type::text
   AND key = :key::text
   AND status IN ({unfinished});

-- name: replace
-- Give the live holder of a key the newer request: a waiting one takes it over, a running one runs again.
UPDATE {schema}.jobs
   SET priority = :priority::bigint,
       rank = CASE WHEN :aging::bigint IS NULL THEN -:priority::bigint
                   ELSE (extract(epoch FROM COALESCE(:run_at::text::timestamptz, {now} + :delay::bigint * interval '1 microsecond')) * 1000000)::bigint
                        - :priority::bigint * :aging::bigint END,
       expires_at = {now} + :expires::bigint * interval '1 microsecond',
       entity_type = :entity_type::text,
       entity_id = :entity_id::text,
       max_attempts = :max_attempts::integer,
       timeout = :timeout::double precision,
       payload = :payload::text::json,
       attempts = CASE WHEN status = 'running' THEN attempts ELSE 0 END,
       status = CASE WHEN status = 'blocked' AND limit_key IS NOT NULL AND NOT :moves::boolean THEN 'pending'
                     WHEN NOT :moves::boolean OR status = 'running' OR (status = 'blocked' AND limit_key IS NULL) THEN status
                     WHEN COALESCE(:run_at::text::timestamptz, {now} + :delay::bigint * interval '1 microsecond') > {now} THEN 'scheduled'
                     ELSE 'pending' END,
       run_at = CASE WHEN NOT :moves::boolean OR status = 'running' THEN run_at
                     ELSE COALESCE(:run_at::text::timestamptz, {now} + :delay::bigint * interval '1 microsecond') END,
       rerun_at = CASE WHEN status <> 'running' THEN NULL
                       WHEN :moves::boolean THEN COALESCE(:run_at::text::timestamptz, {now} + :delay::bigint * interval '1 microsecond')
                       ELSE {now} END,
       verdict = CASE WHEN status = 'running' THEN verdict END,
       updated_at = {now}
 WHERE id = :holder::text::uuid
   AND status IN ({unfinished})
RETURNING id::text;

-- name: claim
-- Take the best pending jobs of one type in one queue, in the order of running, past those that others hold.
-- The bound skips what earlier claims left dead in the index.
WITH wanted AS MATERIALIZED (
    SELECT *
      FROM json_to_recordset(:types::json) AS wanted (type text, rank bigint, run_at timestamptz, id uuid)
     WHERE {may_claim}
       AND NOT EXISTS (SELECT 1 FROM {schema}.limits WHERE name = 'queue:' || :queue::text)
)
UPDATE {schema}.jobs
   SET status = 'running',
       worker_id = :worker::text,
       claim_no = claim_no + 1,
       attempts = attempts + 1,
       started_at = {now},
       updated_at = {now},
       progress = NULL,
       message = NULL,
       limit_name = NULL,
       limit_key = NULL,
       limit_queue = NULL
 WHERE id = ANY(ARRAY(SELECT taken.id
                        FROM wanted
                  CROSS JOIN LATERAL (SELECT id
                                        FROM {schema}.jobs
                                       WHERE status = 'pending'
                                         AND queue = :queue::text
                                         AND type = wanted.type
                                         AND NOT suspect
                                         AND (rank, run_at, id) > (wanted.rank, wanted.run_at, wanted.id)
                                       ORDER BY rank, run_at, id
                                       LIMIT :limit::int
                                         FOR UPDATE SKIP LOCKED) AS taken))
RETURNING {claimed}, jobs.started_at, jobs.payload::text;

-- name: claim_types
-- The same for several types: the best of all of them. `shape` looks, without locks, how many of each type
-- belong to the best; then each type's walk locks that many.
WITH wanted AS MATERIALIZED (
    SELECT *
      FROM json_to_recordset(:types::json) AS wanted (type text, rank bigint, run_at timestamptz, id uuid)
     WHERE {may_claim}
       AND NOT EXISTS (SELECT 1 FROM {schema}.limits WHERE name = 'queue:' || :queue::text)
), shape AS MATERIALIZED (
    SELECT best.type, count(*) AS size
      FROM (SELECT wanted.type
              FROM wanted
        CROSS JOIN LATERAL (SELECT rank, run_at, id
                              FROM {schema}.jobs
                             WHERE status = 'pending'
                               AND queue = :queue::text
                               AND type = wanted.type
                               AND NOT suspect
                               AND (rank, run_at, id) > (wanted.rank, wanted.run_at, wanted.id)
                             ORDER BY rank, run_at, id
                             LIMIT :limit::int) AS head
             ORDER BY head.rank, head.run_at, head.id
             LIMIT :limit::int) AS best
     GROUP BY best.type
)
UPDATE {schema}.jobs
   SET status = 'running',
       worker_id = :worker::text,
       claim_no = claim_no + 1,
       attempts = attempts + 1,
       started_at = {now},
       updated_at = {now},
       progress = NULL,
       message = NULL,
       limit_name = NULL,
       limit_key = NULL,
       limit_queue = NULL
 WHERE id = ANY(ARRAY(SELECT taken.id
                        FROM wanted
                        JOIN shape USING (type)
                  CROSS JOIN LATERAL (SELECT id
                                        FROM {schema}.jobs
                                       WHERE status = 'pending'
                                         AND queue = :queue::text
                                         AND type = wanted.type
                                         AND NOT suspect
                                         AND (rank, run_at, id) > (wanted.rank, wanted.run_at, wanted.id)
                                       ORDER BY rank, run_at, id
                                       LIMIT shape.size
                                         FOR UPDATE SKIP LOCKED) AS taken))
RETURNING {claimed}, jobs.started_at, jobs.payload::text;

-- name: look
-- The best pending jobs of some types in one queue, in the order of running, each type up to a limit of its own; held
-- for this transaction.
WITH wanted AS MATERIALIZED (
    SELECT *
      FROM json_to_recordset(:types::json) AS wanted (type text, "limit" int, rank bigint, run_at timestamptz, id uuid)
     WHERE {may_claim}
), best AS MATERIALIZED (
    SELECT head.id, head.rank, head.run_at
      FROM wanted
CROSS JOIN LATERAL (SELECT id, rank, run_at
                      FROM {schema}.jobs
                     WHERE status = 'pending'
                       AND queue = :queue::text
                       AND type = wanted.type
                       AND NOT suspect
                       AND (rank, run_at, id) > (wanted.rank, wanted.run_at, wanted.id)
                     ORDER BY rank, run_at, id
                     LIMIT wanted."limit"
                       FOR UPDATE SKIP LOCKED) AS head
     ORDER BY head.rank, head.run_at, head.id
     LIMIT :limit::int
)
SELECT {claimed}, jobs.payload::text
  FROM {schema}.jobs
 WHERE jobs.id = ANY(ARRAY(SELECT best.id FROM best))
 ORDER BY jobs.rank, jobs.run_at, jobs.id;

-- name: look_suspect
-- Some of those whose process died under them: whoever takes one runs it alone.
SELECT {claimed}, jobs.payload::text
  FROM {schema}.jobs
 WHERE jobs.status = 'pending'
   AND jobs.suspect
   AND jobs.type IN (SELECT json_array_elements_text(:types::json))
   AND jobs.queue IN (SELECT json_array_elements_text(:queues::json))
   AND jobs.queue NOT IN (SELECT name FROM {schema}.queues WHERE paused_at IS NOT NULL AND (resume_at IS NULL OR resume_at > {now}))
   AND EXISTS (SELECT 1 FROM {schema}.workers WHERE id = :worker::text AND died_at IS NULL)
 ORDER BY jobs.rank, jobs.run_at, jobs.id
 LIMIT :limit::int
   FOR UPDATE OF jobs SKIP LOCKED;

-- name: take
-- Make those jobs running.
UPDATE {schema}.jobs
   SET status = 'running',
       worker_id = :worker::text,
       claim_no = claim_no + 1,
       attempts = attempts + 1,
       started_at = {now},
       updated_at = {now},
       progress = NULL,
       message = NULL,
       limit_name = NULL,
       limit_key = NULL,
       limit_queue = NULL
 WHERE id = ANY(ARRAY(SELECT json_array_elements_text(:ids::json)::uuid))
RETURNING id::text, started_at;

-- name: take_limited
-- The same for jobs that count under limits.
UPDATE {schema}.jobs
   SET status = 'running',
       worker_id = :worker::text,
       claim_no = claim_no + 1,
       attempts = attempts + 1,
       started_at = {now},
       updated_at = {now},
       progress = NULL,
       message = NULL,
       limit_name = new.limit_name,
       limit_key = new.limit_key,
       limit_queue = new.limit_queue
  FROM json_to_recordset(:batch::json) AS new (id uuid, limit_name text, limit_key text, limit_queue text)
 WHERE jobs.id = new.id
   AND jobs.id = ANY(ARRAY(SELECT wanted.id FROM json_to_recordset(:batch::json) AS wanted (id uuid)))
RETURNING jobs.id::text, jobs.started_at;

-- name: lock_keys
-- Hold some keys for this transaction: who counts next, counts what this one has done.
SELECT key
  FROM {schema}.keys
 WHERE key = ANY(ARRAY(SELECT json_array_elements_text(:keys::json)))
 ORDER BY key
   FOR UPDATE;

-- name: rooms
-- How many run under some keys, and what is allowed. A limit counts by its name or its queue, or by its keys.
SELECT keys.key,
       COALESCE(limits.set_concurrency, limits.concurrency),
       COALESCE(limits.set_rate, limits.rate),
       COALESCE(limits.set_period, limits.period),
       keys.starts,
       keys.in_line,
       (extract(epoch FROM {now}) * 1000000)::bigint,
       (SELECT count(*) FROM {schema}.jobs WHERE status = 'running' AND limit_key = keys.key)        --? keyed
       (SELECT count(*) FROM {schema}.jobs WHERE status = 'running' AND limit_name = keys.key)       --? whole
       + (SELECT count(*) FROM {schema}.jobs WHERE status = 'running' AND limit_queue = keys.key)    --? whole
  FROM {schema}.keys
  JOIN {schema}.limits ON limits.name = keys.name
 WHERE keys.key = ANY(ARRAY(SELECT json_array_elements_text(:keys::json)));

-- name: add_keys
-- Keys that are seen for the first time.
INSERT INTO {schema}.keys (key, name)
SELECT key, name
  FROM json_to_recordset(:batch::json) AS new (key text, name text)
 ORDER BY key
ON CONFLICT DO NOTHING;

-- name: spend
-- Remember when jobs of a key started, and when the next may, if some wait for that.
UPDATE {schema}.keys
   SET starts = new.starts,
       wake_at = {now} + new.wait * interval '1 microsecond'
  FROM json_to_recordset(:batch::json) AS new (key text, starts text, wait bigint)
 WHERE keys.key = new.key
   AND keys.key = ANY(ARRAY(SELECT wanted.key FROM json_to_recordset(:batch::json) AS wanted (key text)));

-- name: park
-- These wait for room under their key.
UPDATE {schema}.jobs
   SET status = 'blocked',
       limit_key = new.limit_key,
       updated_at = {now}
  FROM json_to_recordset(:batch::json) AS new (id uuid, limit_key text)
 WHERE jobs.id = new.id
   AND jobs.id = ANY(ARRAY(SELECT wanted.id FROM json_to_recordset(:batch::json) AS wanted (id uuid)))
   AND COALESCE(jobs.status, '') IN ({park});

-- name: unpark
-- The best that wait for a key go back in line; where keys take turns, one of them, at its end.
UPDATE {schema}.jobs
   SET status = 'pending',
       run_at = CASE WHEN EXISTS (SELECT 1
                                    FROM {schema}.keys
                                    JOIN {schema}.limits ON limits.name = keys.name
                                   WHERE keys.key = jobs.limit_key
                                     AND limits.fair) THEN {now} ELSE jobs.run_at END,
       updated_at = {now}
 WHERE id = ANY(ARRAY(SELECT best.id
                        FROM json_to_recordset(:batch::json) AS new (key text, size int)
                   LEFT JOIN {schema}.keys ON keys.key = new.key
                   LEFT JOIN {schema}.limits ON limits.name = keys.name
                  CROSS JOIN LATERAL (SELECT id
                                        FROM {schema}.jobs
                                       WHERE status = 'blocked'
                                         AND limit_key IS NOT NULL
                                         AND limit_key = new.key COLLATE "C"
                                       ORDER BY limit_key, rank, run_at, id
                                       LIMIT CASE WHEN limits.fair THEN 1 - keys.in_line::int ELSE new.size END
                                         FOR UPDATE SKIP LOCKED) AS best))
RETURNING jobs.queue, jobs.limit_key, EXISTS (SELECT 1
                                                FROM {schema}.keys
                                                JOIN {schema}.limits ON limits.name = keys.name
                                               WHERE keys.key = jobs.limit_key
                                                 AND limits.fair);

-- name: turn
-- Where keys take turns: which have a job in line, and which have not.
UPDATE {schema}.keys
   SET in_line = :in_line::boolean
 WHERE key = ANY(ARRAY(SELECT json_array_elements_text(:keys::json)));

-- name: due_keys
-- Keys for which time has made room.
UPDATE {schema}.keys
   SET wake_at = NULL
 WHERE key = ANY(ARRAY(SELECT key
                         FROM {schema}.keys
                        WHERE wake_at <= {now}
                        ORDER BY wake_at
                        LIMIT :limit::int
                          FOR UPDATE SKIP LOCKED))
RETURNING key;

-- name: waiting_keys
-- Keys that jobs wait for, some at a time.
WITH RECURSIVE seen (key, number) AS (
    SELECT (SELECT limit_key FROM {schema}.jobs
             WHERE status = 'blocked' AND limit_key IS NOT NULL AND limit_key > :after::text
             ORDER BY limit_key LIMIT 1), 1
     UNION ALL
    SELECT (SELECT limit_key FROM {schema}.jobs
             WHERE status = 'blocked' AND limit_key IS NOT NULL AND limit_key > seen.key
             ORDER BY limit_key LIMIT 1), seen.number + 1
      FROM seen
     WHERE seen.key IS NOT NULL
       AND seen.number < :limit::int
)
SELECT key
  FROM seen
 WHERE key IS NOT NULL;

-- name: declare_limit
-- A limit as the code has it; what an operator has set stays.
INSERT INTO {schema}.limits (name, concurrency, rate, period, keyed, fair, tasks, updated_at)
SELECT name, concurrency, rate, period, keyed, fair, tasks, {now}
  FROM json_to_recordset(:batch::json)
    AS new (name text, concurrency integer, rate integer, period bigint, keyed boolean, fair boolean, tasks text)
ON CONFLICT (name) DO UPDATE
   SET concurrency = excluded.concurrency,
       rate = excluded.rate,
       period = excluded.period,
       keyed = excluded.keyed,
       fair = excluded.fair,
       tasks = excluded.tasks,
       updated_at = excluded.updated_at
 WHERE (limits.concurrency, limits.rate, limits.period, limits.keyed, limits.fair, limits.tasks)
    IS DISTINCT FROM (excluded.concurrency, excluded.rate, excluded.period, excluded.keyed, excluded.fair, excluded.tasks);

-- name: set_limit
-- What an operator wants instead of the code's; NULL: the code's.
UPDATE {schema}.limits
   SET set_concurrency = :concurrency::integer,
       set_rate = :rate::integer,
       set_period = :period::bigint,
       updated_at = {now}
 WHERE name = :name::text
RETURNING name;

-- name: drop_limit
-- A limit that is no more: a queue's, or one that is gone from the code.
DELETE FROM {schema}.limits
 WHERE name = :name::text
RETURNING name;
DELETE FROM {schema}.keys
 WHERE name = :name::text;

-- name: wake_keys
-- A limit was changed: all that wait for it look again.
UPDATE {schema}.keys
   SET wake_at = {now}
 WHERE name = :name::text;

-- name: crowd
-- What runs in a queue counts under its limit from now on.
UPDATE {schema}.jobs
   SET limit_queue = :name::text
 WHERE status = 'running'
   AND worker_id IS NOT NULL
   AND queue = :queue::text
   AND limit_queue IS NULL;

-- name: limits
-- Every limit, what runs under it, and what is parked for it, counted up to a cap.
SELECT limits.name, limits.concurrency, limits.rate, limits.period, limits.keyed, limits.fair, limits.tasks,
       limits.set_concurrency, limits.set_rate, limits.set_period,
       (SELECT count(*) FROM (SELECT 1 FROM {schema}.jobs
                               WHERE status = 'running' AND limit_key IS NOT NULL
                                 AND limit_key >= limits.name || '=' AND limit_key < limits.name || '>' LIMIT :cap::int) AS counted)
       + (SELECT count(*) FROM (SELECT 1 FROM {schema}.jobs
                                 WHERE status = 'running' AND limit_name = limits.name LIMIT :cap::int) AS counted)
       + (SELECT count(*) FROM (SELECT 1 FROM {schema}.jobs
                                 WHERE status = 'running' AND limit_queue = limits.name LIMIT :cap::int) AS counted),
       (SELECT count(*) FROM (SELECT 1 FROM {schema}.jobs
                               WHERE status = 'blocked' AND limit_key IS NOT NULL
                                 AND limit_key >= limits.name || '=' AND limit_key < limits.name || '>'
                               ORDER BY limit_key, rank, run_at, id LIMIT :cap::int) AS counted)
  FROM {schema}.limits
 ORDER BY limits.name;

-- name: place
-- How many stand in line in front of a job: of those parked for its key, or pending beside it; up to a cap.
SELECT count(*)
  FROM (SELECT 1
          FROM {schema}.jobs
         WHERE status = 'blocked' AND limit_key IS NOT NULL AND limit_key = :limit_key::text       --? parked
         WHERE status = 'pending' AND queue = :queue::text AND type = :type::text AND NOT suspect  --? pending
           AND (rank, run_at, id) < (:rank::bigint, :run_at::text::timestamptz, :id::uuid)
         ORDER BY
               limit_key,                                                                          --? parked
               rank, run_at, id
         LIMIT :cap::int) AS counted;

-- name: prune_keys
-- Forget keys that nobody uses: no job runs or waits under them, and their last starts are over.
DELETE FROM {schema}.keys
 WHERE key = ANY(ARRAY(SELECT key
                         FROM (SELECT key, name, starts, wake_at
                                 FROM {schema}.keys
                                WHERE key > :after::text
                                ORDER BY key
                                LIMIT :limit::int
                                  FOR UPDATE SKIP LOCKED) AS some
                        WHERE some.key <> some.name
                          AND some.starts IS NULL
                          AND some.wake_at IS NULL
                          AND NOT EXISTS (SELECT 1 FROM {schema}.jobs WHERE status = 'running' AND limit_key = some.key)
                          AND NOT EXISTS (SELECT 1 FROM {schema}.jobs WHERE status = 'blocked' AND limit_key = some.key)));

-- name: keys_edge
-- How far that look went: the last key, and how many there were.
SELECT max(key), count(*)
  FROM (SELECT key
          FROM {schema}.keys
         WHERE key > :after::text
         ORDER BY key
         LIMIT :limit::int) AS look;

-- name: suspects
-- The queues and types of jobs that wait to be run alone: a bounded look.
SELECT DISTINCT queue, type
  FROM (SELECT queue, type
          FROM {schema}.jobs
         WHERE status = 'pending'
           AND suspect
         ORDER BY rank, run_at, id
         LIMIT 1000) AS seen
 LIMIT 100;

-- name: complete
-- The common end: it returned, and nothing else was asked of the row. What it passes over (a lost claim, a job that is
-- to run again or has a verdict on it) is left to `finish`.
WITH new AS MATERIALIZED (
    SELECT *
      FROM json_to_recordset(:batch::json) AS new (id uuid, claim_no bigint, keep bigint, result text)
)
UPDATE {schema}.jobs
   SET status = 'completed',
       completed_at = {now},
       keep_until = {now} + new.keep * interval '1 microsecond',
       error = NULL,
       result = new.result::json,
       finish_no = jobs.claim_no,
       updated_at = {now}
  FROM new
 WHERE jobs.id = new.id
   AND jobs.claim_no = new.claim_no
   AND COALESCE(jobs.status, '') = 'running'
   AND jobs.rerun_at IS NULL
   AND NOT jobs.suspect
   AND jobs.verdict IS NULL
   AND jobs.schedule IS NULL
   AND jobs.id = ANY(ARRAY(SELECT held.id
                             FROM {schema}.jobs AS held
                            WHERE held.id = ANY(ARRAY(SELECT id FROM new))
                            ORDER BY held.id
                              FOR UPDATE                                                        --? wait
                              FOR UPDATE SKIP LOCKED                                            --? skip
                          ))
RETURNING jobs.id::text, jobs.status;

-- name: finish
-- Write how runs ended, each only while its claim holds. The row may know better than the run did:
-- a newer request makes it run again, a request to stop wins over being tried again. The status is compared
-- through COALESCE so that the planner goes by primary key, and never by the index of running rows.
WITH new AS MATERIALIZED (
    SELECT *
      FROM json_to_recordset(:batch::json)
        AS new (id uuid, claim_no bigint, status text, final boolean, given_back integer, delay bigint,
                keep bigint, crashed integer, error text, result text)
)
UPDATE {schema}.jobs
   SET status = CASE WHEN jobs.rerun_at > {now} THEN 'scheduled'
                     WHEN jobs.rerun_at IS NOT NULL THEN 'pending'
                     WHEN jobs.cancel_requested AND jobs.schedule IS NULL AND new.status NOT IN ('completed', 'failed') THEN 'cancelled'
                     ELSE new.status END,
       attempts = CASE WHEN jobs.rerun_at IS NOT NULL THEN 0 ELSE jobs.attempts - new.given_back END,
       run_at = COALESCE(jobs.rerun_at, CASE WHEN new.status IN ('retrying', 'scheduled')
                                             THEN {now} + new.delay * interval '1 microsecond'
                                             ELSE jobs.run_at END),
       worker_id = CASE WHEN jobs.rerun_at IS NULL AND new.final THEN jobs.worker_id END,
       started_at = CASE WHEN jobs.rerun_at IS NULL AND new.final THEN jobs.started_at END,
       completed_at = CASE WHEN jobs.rerun_at IS NULL AND (new.final OR (jobs.cancel_requested AND jobs.schedule IS NULL)) THEN {now} END,
       keep_until = CASE WHEN jobs.rerun_at IS NULL AND (new.final OR (jobs.cancel_requested AND jobs.schedule IS NULL))
                         THEN {now} + new.keep * interval '1 microsecond' END,
       error = CASE WHEN new.status <> 'completed' THEN COALESCE(new.error, jobs.error) END,
       result = CASE WHEN jobs.rerun_at IS NULL AND new.status = 'completed' THEN new.result::json END,
       cancel_requested = jobs.rerun_at IS NULL AND jobs.schedule IS NULL AND jobs.cancel_requested,
       crashes = jobs.crashes + new.crashed,
       suspect = false,
       verdict = NULL,
       finish_no = jobs.claim_no,
       rerun_at = NULL,
       updated_at = {now}
  FROM new
 WHERE jobs.id = new.id
   AND jobs.claim_no = new.claim_no
   AND COALESCE(jobs.status, '') = 'running'
   AND jobs.id = ANY(ARRAY(SELECT held.id
                             FROM {schema}.jobs AS held
                            WHERE held.id = ANY(ARRAY(SELECT id FROM new))
                            ORDER BY held.id
                              FOR UPDATE                                                        --? wait
                              FOR UPDATE SKIP LOCKED                                            --? skip
                          ))
RETURNING jobs.id::text, jobs.status;

-- name: recur
-- The end of a recurring job's run: the row waits for its next one, whatever happened. Who asked for a run meanwhile
-- gets it first.
WITH new AS MATERIALIZED (
    SELECT *
      FROM json_to_recordset(:batch::json)
        AS new (id uuid, claim_no bigint, run_at timestamptz, due_at timestamptz, ran boolean, failed boolean,
                stopped boolean, error text, result text)
)
UPDATE {schema}.jobs
   SET status = CASE WHEN jobs.rerun_at <= {now} THEN 'pending' ELSE 'scheduled' END,
       attempts = 0,
       run_at = COALESCE(jobs.rerun_at, new.run_at),
       due_at = COALESCE(jobs.rerun_at, new.due_at),
       last_run_at = CASE WHEN new.ran THEN jobs.started_at ELSE jobs.last_run_at END,
       last_error = CASE WHEN new.failed THEN new.error WHEN new.ran AND NOT new.stopped THEN NULL ELSE jobs.last_error END,
       consecutive_failures = CASE WHEN new.failed THEN jobs.consecutive_failures + 1
                                   WHEN new.ran AND NOT new.stopped THEN 0
                                   ELSE jobs.consecutive_failures END,
       error = CASE WHEN new.failed THEN new.error WHEN new.ran AND NOT new.stopped THEN NULL ELSE jobs.error END,
       result = CASE WHEN new.ran AND NOT new.failed AND NOT new.stopped THEN new.result::json ELSE jobs.result END,
       worker_id = NULL,
       started_at = NULL,
       cancel_requested = false,
       crashes = 0,
       suspect = false,
       verdict = NULL,
       finish_no = jobs.claim_no,
       rerun_at = NULL,
       updated_at = {now}
  FROM new
 WHERE jobs.id = new.id
   AND jobs.claim_no = new.claim_no
   AND COALESCE(jobs.status, '') = 'running'
   AND jobs.schedule IS NOT NULL
   AND jobs.id = ANY(ARRAY(SELECT held.id
                             FROM {schema}.jobs AS held
                            WHERE held.id = ANY(ARRAY(SELECT id FROM new))
                            ORDER BY held.id
                              FOR UPDATE                                                        --? wait
                              FOR UPDATE SKIP LOCKED                                            --? skip
                          ))
RETURNING jobs.id::text, jobs.status;

-- name: insert_results
-- Nothing to do: here they are in the row.
SELECT 1;

-- name: finished
-- What became of finishes that changed nothing: applied before, held by a transaction, or lost.
SELECT id::text, finish_no, claim_no, status
  FROM {schema}.jobs
 WHERE id = ANY(ARRAY(SELECT json_array_elements_text(:ids::json)::uuid));

-- name: record_attempts
-- Keep a failed run with its job; the newest 50 of a job stay.
INSERT INTO {schema}.attempts
       (job_id, claim_no, attempt, worker_id, started_at, finished_at, status, error, trace)
SELECT id, claim_no, attempt, worker_id, started_at, {now},
       (SELECT status FROM {schema}.jobs WHERE jobs.id = new.id), error, trace
  FROM json_to_recordset(:batch::json)
    AS new (id uuid, claim_no bigint, attempt integer, worker_id text, started_at timestamptz,
            error text, trace text)
ON CONFLICT DO NOTHING;
DELETE FROM {schema}.attempts
 USING json_to_recordset(:batch::json) AS new (id uuid)
 WHERE attempts.job_id = new.id
   AND attempts.claim_no <= (SELECT old.claim_no
                               FROM {schema}.attempts AS old
                              WHERE old.job_id = new.id
                              ORDER BY old.claim_no DESC
                              LIMIT 1 OFFSET 50);

-- name: promote
-- Make due jobs pending, the longest due first.
UPDATE {schema}.jobs
   SET status = 'pending',
       updated_at = {now}
 WHERE id = ANY(ARRAY(SELECT id
                        FROM {schema}.jobs
                       WHERE status IN ({promote})
                         AND enabled
                         AND run_at <= {now}
                       ORDER BY run_at, id
                       LIMIT :limit::int
                         FOR UPDATE SKIP LOCKED))
RETURNING queue;

-- name: next_due
-- Microseconds until the next job is due, or a key has room by time; not positive: now.
SELECT LEAST((SELECT (extract(epoch FROM run_at - {now}) * 1000000)::bigint
                FROM {schema}.jobs
               WHERE status IN ({promote})
                 AND enabled
               ORDER BY run_at, id
               LIMIT 1),
             (SELECT (extract(epoch FROM wake_at - {now}) * 1000000)::bigint
                FROM {schema}.keys
               WHERE wake_at IS NOT NULL
               ORDER BY wake_at
               LIMIT 1));

-- name: bury
-- Mark workers dead, for good, if they are as silent as was seen.
UPDATE {schema}.workers
   SET died_at = {now}
  FROM json_to_recordset(:batch::json) AS seen (id text, beat_no bigint)
 WHERE workers.id = seen.id
   AND (seen.beat_no IS NULL OR workers.beat_no = seen.beat_no)
   AND workers.died_at IS NULL
RETURNING workers.id, workers.left_at;

-- name: suspect
-- One of the jobs that a worker held may have killed it: each runs alone next time, and one that was alone already has
-- a crash on its record.
UPDATE {schema}.jobs
   SET suspect = true,
       crashes = crashes + (SELECT CASE count(*) WHEN 1 THEN 1 ELSE 0 END
                              FROM (SELECT 1
                                      FROM {schema}.jobs AS beside
                                     WHERE beside.worker_id = jobs.worker_id
                                       AND beside.status = 'running'
                                     LIMIT 2) AS held)
 WHERE id = ANY(ARRAY(SELECT held.id
                        FROM json_to_recordset(:batch::json) AS dead (id text)
                        JOIN {schema}.jobs AS held ON held.worker_id = dead.id
                       WHERE held.status = 'running'
                         FOR UPDATE OF held SKIP LOCKED));

-- name: rescue
-- Give back what dead workers held; the attempt is given back too.
UPDATE {schema}.jobs
   SET status = CASE WHEN rerun_at > {now} THEN 'scheduled'
                     WHEN rerun_at IS NULL AND cancel_requested AND schedule IS NULL THEN 'cancelled'
                     ELSE 'pending' END,
       attempts = CASE WHEN rerun_at IS NOT NULL THEN 0 ELSE attempts - 1 END,
       run_at = COALESCE(rerun_at, run_at),
       worker_id = NULL,
       started_at = NULL,
       completed_at = CASE WHEN rerun_at IS NULL AND cancel_requested AND schedule IS NULL THEN {now} END,
       keep_until = CASE WHEN rerun_at IS NULL AND cancel_requested AND schedule IS NULL THEN {now} + :keep::bigint * interval '1 microsecond' END,
       cancel_requested = rerun_at IS NULL AND cancel_requested AND schedule IS NULL,
       verdict = CASE WHEN rerun_at IS NULL THEN verdict END,
       rerun_at = NULL,
       updated_at = {now}
 WHERE id = ANY(ARRAY(SELECT held.id
                        FROM {schema}.workers AS dead
                        JOIN {schema}.jobs AS held ON held.worker_id = dead.id
                       WHERE dead.died_at IS NOT NULL
                         AND held.status = 'running'
                       LIMIT :limit::int
                         FOR UPDATE OF held SKIP LOCKED))
RETURNING {columns};

-- name: leave
-- A worker goes in good order: what it still holds did not kill it.
UPDATE {schema}.workers
   SET left_at = {now}
 WHERE id = :id::text
   AND died_at IS NULL;

-- name: sentence
-- What to record of a run that its worker cannot record any more; whoever claims it next does.
UPDATE {schema}.jobs
   SET verdict = :verdict::text
 WHERE id = :id::uuid
   AND claim_no = :claim_no::bigint
   AND COALESCE(status, '') = 'running';

-- name: report
-- How far runs have come, each only while its claim holds.
UPDATE {schema}.jobs
   SET progress = new.progress,
       message = new.message,
       updated_at = {now}
  FROM json_to_recordset(:batch::json) AS new (id uuid, claim_no bigint, progress double precision, message text)
 WHERE jobs.id = new.id
   AND jobs.claim_no = new.claim_no
   AND COALESCE(jobs.status, '') = 'running'
   AND jobs.id = ANY(ARRAY(SELECT held.id
                             FROM {schema}.jobs AS held
                            WHERE held.id = ANY(ARRAY(SELECT wanted.id FROM json_to_recordset(:batch::json) AS wanted (id uuid)))
                            ORDER BY held.id
                              FOR UPDATE SKIP LOCKED));

-- name: prune
-- Delete finished jobs whose time is over, the oldest first: a bounded look at one status.
DELETE FROM {schema}.jobs
 WHERE id = ANY(ARRAY(SELECT old.id
                        FROM {schema}.jobs AS old
                       WHERE old.id = ANY(ARRAY(SELECT id
                                                  FROM (SELECT id, keep_until
                                                          FROM {schema}.jobs
                                                         WHERE status = ANY(ARRAY[:status::text])
                                                           AND status <> 'running'
                                                           AND id > :after::uuid
                                                           AND id < :before::uuid
                                                         ORDER BY status, id
                                                         LIMIT :scan::int) AS look
                                                 WHERE keep_until <= {now}
                                                 LIMIT :limit::int))
                         AND old.status IN ({finished})
                         FOR UPDATE SKIP LOCKED))
RETURNING id::text;

-- name: prune_edge
-- How far that look went: the last id, and how many rows it saw.
SELECT max(id::text), count(*)
  FROM (SELECT id
          FROM {schema}.jobs
         WHERE status = ANY(ARRAY[:status::text])
           AND status <> 'running'
           AND id > :after::uuid
           AND id < :before::uuid
         ORDER BY status, id
         LIMIT :scan::int) AS look;

-- name: prune_workers
-- Forget workers that died before the given age and hold nothing.
DELETE FROM {schema}.workers
 WHERE died_at <= {now} - :age::bigint * interval '1 microsecond'
   AND NOT EXISTS (SELECT 1 FROM {schema}.jobs WHERE status = 'running' AND worker_id = workers.id);

-- name: cancel
-- Cancel what waits; ask what runs to stop.
UPDATE {schema}.jobs
   SET status = CASE WHEN status = 'running' THEN status ELSE 'cancelled' END,
       cancel_requested = true,
       completed_at = CASE WHEN status <> 'running' THEN {now} END,
       keep_until = CASE WHEN status <> 'running' THEN {now} + :keep::bigint * interval '1 microsecond' END,
       rerun_at = NULL,
       updated_at = {now}
 WHERE id = ANY(ARRAY(SELECT job_id FROM json_to_recordset(:batch::json) AS new (job_id uuid)))
   AND status IN ({cancel}, {request_cancel})
   AND (schedule IS NULL OR status = 'running')
RETURNING id::text;

-- name: retry
-- Run again, from the beginning, unless another live job holds the key by now; of several with one key, the first.
WITH asked AS MATERIALIZED (
    SELECT id, key, row_number() OVER (PARTITION BY type, key ORDER BY id) AS place
      FROM {schema}.jobs
     WHERE id = ANY(ARRAY(SELECT job_id FROM json_to_recordset(:batch::json) AS new (job_id uuid)))
       AND COALESCE(status, '') IN ({retry})
)
UPDATE {schema}.jobs
   SET status = 'pending',
       attempts = 0,
       crashes = 0,
       suspect = false,
       verdict = NULL,
       run_at = {now},
       due_at = CASE WHEN schedule IS NOT NULL THEN {now} END,
       worker_id = NULL,
       started_at = NULL,
       completed_at = NULL,
       keep_until = NULL,
       error = NULL,
       progress = NULL,
       message = NULL,
       cancel_requested = false,
       result = NULL,
       updated_at = {now}
 WHERE id = ANY(ARRAY(SELECT id FROM asked WHERE place = 1 OR key IS NULL))
   AND COALESCE(status, '') IN ({retry})
   AND NOT EXISTS (SELECT 1
                     FROM {schema}.jobs AS live
                    WHERE live.type = jobs.type
                      AND live.key = jobs.key
                      AND live.status IN ({unfinished})
                      AND live.id <> jobs.id
                   OFFSET 0)
RETURNING id::text, queue;

-- name: delete
-- Remove jobs, whatever they are doing; a run whose row is gone ends quietly.
DELETE FROM {schema}.jobs
 WHERE id = ANY(ARRAY(SELECT job_id FROM json_to_recordset(:batch::json) AS new (job_id uuid)))
RETURNING id::text, limit_key, status, queue;

-- name: beat
-- A worker's sign of life, the first one makes its row; a dead worker stays dead.
INSERT INTO {schema}.workers (id, info, beat_no, started_at, beat_at)
VALUES (:id::text, :info::text, 1, {now}, {now})
ON CONFLICT (id) DO UPDATE
   SET beat_no = workers.beat_no + 1,
       beat_at = {now},
       info = excluded.info
 WHERE workers.died_at IS NULL
RETURNING beat_no;

-- name: held
-- What a worker holds, by the database's word.
SELECT id::text, claim_no, cancel_requested
  FROM {schema}.jobs
 WHERE status = 'running'
   AND worker_id = :worker::text;

-- name: pause
-- Pause a queue or let it go on.
INSERT INTO {schema}.queues (name, paused_at, resume_at)
VALUES (:name::text, CASE WHEN :paused::boolean THEN {now} END,
        COALESCE(:resume_at::text::timestamptz, {now} + :resume_in::bigint * interval '1 microsecond'))
ON CONFLICT (name) DO UPDATE
   SET paused_at = CASE WHEN :paused::boolean THEN COALESCE(queues.paused_at, {now}) END,
       resume_at = excluded.resume_at;

-- name: find_schedule
-- A recurring job by its task and key, held for this transaction.
SELECT {columns}
  FROM {schema}.jobs
 WHERE type = :type::text
   AND key = :key::text
   AND status IN ({unfinished})
   FOR UPDATE;

-- name: renew_schedule
-- A recurring job as it is asked for now: enabled, with these arguments; its next run stays.
UPDATE {schema}.jobs
   SET schedule = :schedule::text,
       queue = :queue::text,
       priority = :priority::bigint,
       rank = CASE WHEN :aging::bigint IS NULL THEN -:priority::bigint
                   ELSE (extract(epoch FROM run_at) * 1000000)::bigint - :priority::bigint * :aging::bigint END,
       entity_type = :entity_type::text,
       entity_id = :entity_id::text,
       timeout = :timeout::double precision,
       enabled = enabled OR :enables::boolean,
       payload = :payload::text::json,
       updated_at = {now}
 WHERE id = :holder::text::uuid
   AND schedule IS NOT NULL;

-- name: enable_schedule
-- Let a recurring job run, or keep it from doing so; a run that has begun ends as it would.
UPDATE {schema}.jobs
   SET enabled = :enabled::boolean,
       message = :message::text,
       status = CASE WHEN :enabled::boolean OR status = 'running' THEN status ELSE 'scheduled' END,
       updated_at = {now}
 WHERE id = :id::text::uuid
   AND schedule IS NOT NULL;

-- name: move_schedule
-- Choose the next run of a recurring job; of one that runs, the run after this one.
UPDATE {schema}.jobs
   SET status = CASE WHEN status = 'running' THEN status
                     WHEN COALESCE(:run_at::text::timestamptz, {now} + :delay::bigint * interval '1 microsecond') > {now} THEN 'scheduled'
                     ELSE 'pending' END,
       run_at = CASE WHEN status = 'running' THEN run_at
                     ELSE COALESCE(:run_at::text::timestamptz, {now} + :delay::bigint * interval '1 microsecond') END,
       due_at = CASE WHEN status = 'running' THEN due_at
                     ELSE COALESCE(:run_at::text::timestamptz, {now} + :delay::bigint * interval '1 microsecond') END,
       rerun_at = CASE WHEN status = 'running' THEN COALESCE(:run_at::text::timestamptz, {now} + :delay::bigint * interval '1 microsecond') END,
       updated_at = {now}
 WHERE id = :id::text::uuid
   AND schedule IS NOT NULL;

-- name: schedules
-- Recurring jobs by task and key, some at a time.
SELECT {columns}
  FROM {schema}.jobs
 WHERE schedule IS NOT NULL
   AND (type, key) > (:type::text, :key::text)
 ORDER BY type, key
 LIMIT :limit::int;

-- name: get
-- Whole jobs by id.
SELECT {columns}, payload::text, result::text
  FROM {schema}.jobs
 WHERE id = ANY(ARRAY(SELECT json_array_elements_text(:ids::json)::uuid));

-- name: attempts
-- The failed runs of a job, the newest first.
SELECT job_id::text, claim_no, attempt, worker_id, started_at, finished_at, status, error, trace
  FROM {schema}.attempts
 WHERE job_id = :id::uuid
 ORDER BY claim_no DESC;

-- name: search
-- A page of jobs, the newest first: a bounded walk of one index, filtered. Bodies are not read. "= ANY" and the order
-- leave the planner one index to choose: by a plain "status = ..." it may walk the primary key, and find nothing.
SELECT {columns}
  FROM (SELECT *
          FROM {schema}.jobs                                                --? newest
          FROM {schema}.jobs                                                --? listed
          FROM {schema}.jobs                                                --? entity
          FROM (SELECT * FROM {schema}.jobs WHERE status = 'running' OFFSET 0) AS jobs --? running
         WHERE id < :before::uuid
           AND id >= :since::uuid
           AND status = ANY(ARRAY[:status::text]) AND status <> 'running'   --? listed
           AND entity_type = ANY(ARRAY[:entity_type::text])                 --? entity
           AND entity_id = :entity_id::text AND entity_type IS NOT NULL     --? entity
         ORDER BY
               status DESC,                                                 --? listed
               entity_type DESC,                                            --? entity
               id DESC
         LIMIT :scan::int) AS jobs
 WHERE TRUE
   AND status = :status::text                                               --? status
   AND queue = :queue::text                                                 --? queue
   AND type = :type::text                                                   --? type
   AND type >= :prefix::text COLLATE "C" AND type < :prefix_end::text COLLATE "C"  --? prefix
   AND key = :key::text                                                     --? key
   AND worker_id = :worker_id::text                                         --? worker
 ORDER BY id DESC
 LIMIT :limit::int;

-- name: search_edge
-- How far that walk went: the last id, and how many rows it saw.
SELECT min(id::text), count(*)
  FROM (SELECT id
          FROM {schema}.jobs                                                --? newest
          FROM {schema}.jobs                                                --? listed
          FROM {schema}.jobs                                                --? entity
          FROM (SELECT * FROM {schema}.jobs WHERE status = 'running' OFFSET 0) AS jobs --? running
         WHERE id < :before::uuid
           AND id >= :since::uuid
           AND status = ANY(ARRAY[:status::text]) AND status <> 'running'   --? listed
           AND entity_type = ANY(ARRAY[:entity_type::text])                 --? entity
           AND entity_id = :entity_id::text AND entity_type IS NOT NULL     --? entity
         ORDER BY
               status DESC,                                                 --? listed
               entity_type DESC,                                            --? entity
               id DESC
         LIMIT :scan::int) AS look;

-- name: count
-- How many jobs have a status, counted up to a cap.
SELECT count(*)
  FROM (SELECT 1
          FROM {schema}.jobs
         WHERE TRUE
           AND status = ANY(ARRAY[:status::text]) AND status <> 'running'   --? listed
           AND status = 'running'                                           --? running
         ORDER BY
               status,                                                      --? listed
               worker_id,                                                   --? running
               id
         LIMIT :cap::int) AS counted;

-- name: workers
-- Every worker that is remembered.
SELECT id, info, beat_no, started_at, beat_at, left_at, died_at
  FROM {schema}.workers
 ORDER BY id;

-- name: queues
-- Queues that hold pending jobs or were ever paused; depth is counted up to a cap.
WITH RECURSIVE seen (name) AS (
    (SELECT queue FROM {schema}.jobs WHERE status = 'pending' ORDER BY queue LIMIT 1)
     UNION ALL
    SELECT (SELECT queue FROM {schema}.jobs WHERE status = 'pending' AND queue > seen.name ORDER BY queue LIMIT 1)
      FROM seen
     WHERE seen.name IS NOT NULL
)
SELECT names.name,
       CASE WHEN kept.resume_at <= {now} THEN NULL ELSE kept.paused_at END,
       CASE WHEN kept.resume_at > {now} THEN kept.resume_at END,
       (SELECT count(*) FROM (SELECT 1 FROM {schema}.jobs WHERE status = 'pending' AND queue = names.name ORDER BY type, suspect, rank, run_at, id LIMIT :cap::int) AS counted)
  FROM (SELECT name FROM seen WHERE name IS NOT NULL UNION SELECT name FROM {schema}.queues) AS names
  LEFT JOIN {schema}.queues AS kept ON kept.name = names.name
 ORDER BY names.name;
