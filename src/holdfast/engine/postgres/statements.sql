-- The SQL of the PostgreSQL engine. The same names, in the same order, as ../sqlite/statements.sql.
-- A statement given a batch takes it as one JSON parameter, :batch. {now} is the server's moment of the
-- statement. JSON, ids and times travel as text (`:ids::text::json`, `created_at::text`): the codecs that a caller has given
-- its connection for these types do not matter. Written for READ COMMITTED: what decides is locked first, or checked by the UPDATE itself. Rows of jobs are
-- locked FOR NO KEY UPDATE: a row of attempts or logs that is written meanwhile, which refers to the job, is in nobody's way.

-- name: insert
-- Add jobs; one whose id or idempotency key is there, or whose key is live, is left out. A single one comes as plain parameters,
-- which is a fifth quicker; one queue can be hinted at by the way.
WITH made AS (                                                                                          --? hint
INSERT INTO {schema}.jobs
       (id, type, queue, status, priority, rank, key, entity_type, entity_id,
        schedule, due_at, expires_at, workflow_id, node, idempotency_key,                               --? special
        max_attempts, timeout, created_at, updated_at, run_at, payload)
SELECT id, type, queue,
       CASE WHEN waits THEN 'blocked' ELSE                                                              --? special
       CASE WHEN COALESCE(run_at, {now} + delay * interval '1 microsecond') > {now} THEN 'scheduled' ELSE 'pending' END
       END                                                                                              --? special
       , priority,
       -priority,                                                                                       --? plain
       CASE WHEN aging IS NULL THEN -priority                                                           --? special
            ELSE (extract(epoch FROM COALESCE(run_at, {now} + delay * interval '1 microsecond')) * 1000000)::bigint --? special
                 - priority * aging END,                                                                --? special
       key, entity_type, entity_id,
       schedule,                                                                                        --? special
       CASE WHEN schedule IS NOT NULL THEN COALESCE(run_at, {now} + delay * interval '1 microsecond') END, --? special
       {now} + expires * interval '1 microsecond', workflow_id, node, idempotency_key,                  --? special
       max_attempts, timeout, {now}, {now}, COALESCE(run_at, {now} + delay * interval '1 microsecond'), payload::json
  FROM json_to_recordset(:batch::text::json)                                                            --? many
    AS new (id uuid, type text, queue text, priority bigint, key text, entity_type text, entity_id text, --? many
            schedule text, aging bigint, expires bigint, workflow_id uuid, node text, waits boolean,    --? many
            idempotency_key text,                                                                       --? many
            max_attempts integer, timeout double precision, run_at timestamptz, delay bigint, payload text) --? many
  FROM (VALUES (:id::text::uuid, :type::text, :queue::text, :priority::bigint, :key::text,              --? one
                :entity_type::text, :entity_id::text, :schedule::text, :aging::bigint, :expires::bigint, --? one
                :workflow_id::text::uuid, :node::text, :waits::boolean, :idempotency_key::text,         --? one
                :max_attempts::integer, :timeout::double precision, :run_at::text::timestamptz,         --? one
                :delay::bigint, :payload::text))                                                        --? one
    AS new (id, type, queue, priority, key, entity_type, entity_id, schedule, aging, expires,           --? one
            workflow_id, node, waits, idempotency_key,                                                  --? one
            max_attempts, timeout, run_at, delay, payload)                                              --? one
ON CONFLICT DO NOTHING
RETURNING id::text, status, created_at::text, run_at::text
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
  FROM json_array_elements_text(:queues::text::json) AS queue;

-- name: present
-- Which of these ids exist.
SELECT id::text
  FROM {schema}.jobs
 WHERE id = ANY(ARRAY(SELECT json_array_elements_text(:ids::text::json)::uuid));

-- name: holder
-- The live job that holds a key, and whether it recurs.
SELECT id::text, status, schedule IS NOT NULL
  FROM {schema}.jobs
 WHERE type = :type::text
   AND key = :key::text
   AND status IN ({unfinished});

-- name: first_by_idempotency_key
-- The job that has an idempotency key, whatever its status.
SELECT id::text
  FROM {schema}.jobs
 WHERE type = :type::text
   AND idempotency_key = :idempotency_key::text;

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
       unreadable_since = CASE WHEN status = 'running' THEN unreadable_since END,
       updated_at = {now}
 WHERE id = :holder::text::uuid
   AND status IN ({unfinished})
RETURNING id::text;

-- name: claim
-- Take the best pending jobs of one type in one queue, in the order of running, past those that others hold.
-- The bound skips what earlier claims left dead in the index.
WITH wanted AS MATERIALIZED (
    SELECT *
      FROM json_to_recordset(:types::text::json) AS wanted (type text, rank bigint, run_at timestamptz, id uuid)
     WHERE EXISTS (SELECT 1 FROM {schema}.workers WHERE id = :worker::text AND died_at IS NULL)
       AND NOT EXISTS (SELECT 1 FROM {schema}.queues
                        WHERE name = :queue::text AND paused_at IS NOT NULL AND (resume_at IS NULL OR resume_at > {now}))
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
                                         FOR NO KEY UPDATE SKIP LOCKED) AS taken))
RETURNING {claimed}, jobs.started_at, jobs.payload::text;

-- name: claim_types
-- The same for several types: the best of all of them. `shape` looks, without locks, how many of each type
-- belong to the best; then each type's walk locks that many.
WITH wanted AS MATERIALIZED (
    SELECT *
      FROM json_to_recordset(:types::text::json) AS wanted (type text, rank bigint, run_at timestamptz, id uuid)
     WHERE EXISTS (SELECT 1 FROM {schema}.workers WHERE id = :worker::text AND died_at IS NULL)
       AND NOT EXISTS (SELECT 1 FROM {schema}.queues
                        WHERE name = :queue::text AND paused_at IS NOT NULL AND (resume_at IS NULL OR resume_at > {now}))
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
                                         FOR NO KEY UPDATE SKIP LOCKED) AS taken))
RETURNING {claimed}, jobs.started_at, jobs.payload::text;

-- name: look
-- The best pending jobs of one type or some in one queue, in the order of running, each type up to a limit of its own;
-- held for this transaction.
SELECT {claimed}, jobs.payload::text                                                                    --? one
  FROM {schema}.jobs                                                                                    --? one
 WHERE jobs.status = 'pending'                                                                          --? one
   AND jobs.queue = :queue::text                                                                        --? one
   AND jobs.type = :type::text                                                                          --? one
   AND NOT jobs.suspect                                                                                 --? one
   AND EXISTS (SELECT 1 FROM {schema}.workers WHERE id = :worker::text AND died_at IS NULL)             --? one
   AND NOT EXISTS (SELECT 1 FROM {schema}.queues                                                        --? one
                    WHERE name = :queue::text AND paused_at IS NOT NULL AND (resume_at IS NULL OR resume_at > {now})) --? one
   AND (:guard::text = '' OR NOT EXISTS (SELECT 1 FROM {schema}.limits WHERE name = 'queue:' || :queue::text)) --? one
 ORDER BY jobs.rank, jobs.run_at, jobs.id                                                               --? one
 LIMIT :limit::int                                                                                      --? one
   FOR NO KEY UPDATE OF jobs SKIP LOCKED                                                                --? one
WITH wanted AS MATERIALIZED (                                                                           --? several
    SELECT *                                                                                            --? several
      FROM json_to_recordset(:types::text::json) AS wanted (type text, "limit" int, rank bigint, run_at timestamptz, id uuid) --? several
     WHERE EXISTS (SELECT 1 FROM {schema}.workers WHERE id = :worker::text AND died_at IS NULL)         --? several
       AND NOT EXISTS (SELECT 1 FROM {schema}.queues                                                    --? several
                        WHERE name = :queue::text AND paused_at IS NOT NULL AND (resume_at IS NULL OR resume_at > {now})) --? several
       AND (:guard::text = '' OR NOT EXISTS (SELECT 1 FROM {schema}.limits WHERE name = 'queue:' || :queue::text)) --? several
), best AS MATERIALIZED (                                                                               --? several
    SELECT head.id, head.rank, head.run_at                                                              --? several
      FROM wanted                                                                                       --? several
CROSS JOIN LATERAL (SELECT id, rank, run_at                                                             --? several
                      FROM {schema}.jobs                                                                --? several
                     WHERE status = 'pending'                                                           --? several
                       AND queue = :queue::text                                                         --? several
                       AND type = wanted.type                                                           --? several
                       AND NOT suspect                                                                  --? several
                       AND (rank, run_at, id) > (wanted.rank, wanted.run_at, wanted.id)                 --? several
                     ORDER BY rank, run_at, id                                                          --? several
                     LIMIT wanted."limit"                                                               --? several
                       FOR NO KEY UPDATE SKIP LOCKED) AS head                                           --? several
     ORDER BY head.rank, head.run_at, head.id                                                           --? several
     LIMIT :limit::int                                                                                  --? several
)                                                                                                       --? several
SELECT {claimed}, jobs.payload::text                                                                    --? several
  FROM {schema}.jobs                                                                                    --? several
 WHERE jobs.id = ANY(ARRAY(SELECT best.id FROM best))                                                   --? several
 ORDER BY jobs.rank, jobs.run_at, jobs.id                                                               --? several
;

-- name: look_suspects
-- Some of the jobs whose process died under them; of one level (decision 0021), or of any.
SELECT {claimed}, jobs.deaths, jobs.payload::text
  FROM {schema}.jobs
 WHERE jobs.status = 'pending'
   AND jobs.suspect
   AND (:level::int IS NULL OR LEAST(GREATEST(jobs.deaths, 1), 3) = :level::int)
   AND jobs.type IN (SELECT json_array_elements_text(:types::text::json))
   AND jobs.queue IN (SELECT json_array_elements_text(:queues::text::json))
   AND jobs.queue NOT IN (SELECT name FROM {schema}.queues WHERE paused_at IS NOT NULL AND (resume_at IS NULL OR resume_at > {now}))
   AND EXISTS (SELECT 1 FROM {schema}.workers WHERE id = :worker::text AND died_at IS NULL)
 ORDER BY jobs.rank, jobs.run_at, jobs.id
 LIMIT :limit::int
   FOR NO KEY UPDATE OF jobs SKIP LOCKED;

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
 WHERE id = ANY(ARRAY(SELECT json_array_elements_text(:ids::text::json)::uuid))
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
  FROM json_to_recordset(:batch::text::json) AS new (id uuid, limit_name text, limit_key text, limit_queue text)
 WHERE jobs.id = new.id
   AND jobs.id = ANY(ARRAY(SELECT wanted.id FROM json_to_recordset(:batch::text::json) AS wanted (id uuid)))
RETURNING jobs.id::text, jobs.started_at;

-- name: suspects
-- How many jobs wait whose process died under them, by queue, type and level: a bounded look. Paused queues are left out.
SELECT queue, type, level, count(*)
  FROM (SELECT queue, type, LEAST(GREATEST(deaths, 1), 3) AS level
          FROM {schema}.jobs
         WHERE status = 'pending'
           AND suspect
         ORDER BY rank, run_at, id
         LIMIT 1000) AS seen
 WHERE queue NOT IN (SELECT name FROM {schema}.queues WHERE paused_at IS NOT NULL AND (resume_at IS NULL OR resume_at > {now}))
 GROUP BY queue, type, level
 LIMIT 300;

-- name: complete
-- The common end: it returned, and nothing else was asked of the row. What it passes over (a lost claim, a job that is
-- to run again or has a verdict on it) is left to `finish`.
WITH new AS MATERIALIZED (
    SELECT *
      FROM json_to_recordset(:batch::text::json) AS new (id uuid, claim_no bigint, keep bigint, result text)
)
UPDATE {schema}.jobs
   SET status = 'completed',
       completed_at = {now},
       keep_until = {now} + new.keep * interval '1 microsecond',
       error = NULL,
       unreadable_since = NULL,
       result = new.result::json,
       finish_no = jobs.claim_no,
       updated_at = {now}
  FROM new
 WHERE jobs.id = new.id
   AND jobs.claim_no = new.claim_no
   AND COALESCE(jobs.status, '') = 'running'
   AND jobs.rerun_at IS NULL
   AND jobs.deaths = 0
   AND jobs.verdict IS NULL
   AND jobs.schedule IS NULL
   AND jobs.id = ANY(ARRAY(SELECT held.id
                             FROM {schema}.jobs AS held
                            WHERE held.id = ANY(ARRAY(SELECT id FROM new))
                            ORDER BY held.id
                              FOR NO KEY UPDATE                                                 --? wait
                              FOR NO KEY UPDATE SKIP LOCKED                                     --? skip
                          ))
RETURNING jobs.id::text, jobs.status;

-- name: finish
-- Write how runs ended, each only while its claim holds. The row may know better than the run did:
-- a newer request makes it run again, a request to stop wins over being tried again. The status is compared
-- through COALESCE so that the planner goes by primary key, and never by the index of running rows.
WITH new AS MATERIALIZED (
    SELECT *
      FROM json_to_recordset(:batch::text::json)
        AS new (id uuid, claim_no bigint, status text, final boolean, given_back integer, delay bigint,
                keep bigint, crashed integer, died integer, blameless boolean, unreadable boolean, error text, result text)
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
       crashes = CASE WHEN new.blameless AND NOT new.final THEN 0 ELSE jobs.crashes + new.crashed END,
       deaths = CASE WHEN new.blameless THEN 0 ELSE jobs.deaths + new.died END,
       suspect = jobs.suspect AND NOT new.blameless,
       verdict = NULL,
       unreadable_since = CASE WHEN new.unreadable AND jobs.rerun_at IS NULL THEN COALESCE(jobs.unreadable_since, {now}) END,
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
                              FOR NO KEY UPDATE                                                 --? wait
                              FOR NO KEY UPDATE SKIP LOCKED                                     --? skip
                          ))
RETURNING jobs.id::text, jobs.status;

-- name: insert_results
-- Nothing to do: here they are in the row.
SELECT 1;

-- name: finished
-- What became of finishes that changed nothing: applied before, held by a transaction, or lost.
SELECT id::text, finish_no, claim_no, status
  FROM {schema}.jobs
 WHERE id = ANY(ARRAY(SELECT json_array_elements_text(:ids::text::json)::uuid));

-- name: record_attempts
-- Keep a failed run with its job; the newest 50 of a job stay.
INSERT INTO {schema}.attempts
       (job_id, claim_no, attempt, worker_id, started_at, finished_at, status, error, trace)
SELECT id, claim_no, attempt, worker_id, started_at, {now},
       (SELECT status FROM {schema}.jobs WHERE jobs.id = new.id), error, trace
  FROM json_to_recordset(:batch::text::json)
    AS new (id uuid, claim_no bigint, attempt integer, worker_id text, started_at timestamptz,
            error text, trace text)
ON CONFLICT DO NOTHING;
DELETE FROM {schema}.attempts
 USING json_to_recordset(:batch::text::json) AS new (id uuid)
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
                         FOR NO KEY UPDATE SKIP LOCKED))
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
  FROM json_to_recordset(:batch::text::json) AS seen (id text, beat_no bigint)
 WHERE workers.id = seen.id
   AND (seen.beat_no IS NULL OR workers.beat_no = seen.beat_no)
   AND workers.died_at IS NULL
RETURNING workers.id, workers.left_at, workers.info::text;

-- name: suspect
-- A worker died: each job that had begun in it has one more death on record, and one that was the only one has a crash
-- too, if the process died by its own doing. `begun`: a list of 'id:claim number', or NULL: all that the worker held.
UPDATE {schema}.jobs
   SET suspect = true,
       deaths = jobs.deaths + 1,
       crashes = jobs.crashes + dead.alone,
       error = CASE WHEN dead.alone = 1 THEN dead.crash ELSE jobs.error END
  FROM json_to_recordset(:batch::text::json) AS dead (id text, alone integer, crash text)
 WHERE jobs.worker_id = dead.id
   AND jobs.status = 'running'
   AND jobs.id = ANY(ARRAY(SELECT held.id
                             FROM json_to_recordset(:batch::text::json) AS gone (id text, begun text)
                             JOIN {schema}.jobs AS held ON held.worker_id = gone.id
                            WHERE held.status = 'running'
                              AND (gone.begun IS NULL OR held.id::text || ':' || held.claim_no IN (SELECT json_array_elements_text(gone.begun::json)))
                              FOR NO KEY UPDATE OF held SKIP LOCKED));

-- name: fallen
-- What dead workers held, and whether they went in good order.
SELECT held.id::text, held.claim_no, held.attempts, held.worker_id, held.started_at, held.verdict, dead.left_at IS NOT NULL
  FROM {schema}.workers AS dead
  JOIN {schema}.jobs AS held ON held.worker_id = dead.id
 WHERE dead.died_at IS NOT NULL
   AND held.status = 'running'
 LIMIT :limit::int
   FOR NO KEY UPDATE OF held SKIP LOCKED;

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
       unreadable_since = NULL,
       rerun_at = NULL,
       updated_at = {now}
 WHERE id = ANY(ARRAY(SELECT json_array_elements_text(:ids::text::json)::uuid))
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
 WHERE id = :id::text::uuid
   AND claim_no = :claim_no::bigint
   AND COALESCE(status, '') = 'running';

-- name: report
-- How far runs have come, each only while its claim holds, and if that is news: at its end a run may tell it once more.
UPDATE {schema}.jobs
   SET progress = new.progress,
       message = new.message,
       updated_at = {now}
  FROM json_to_recordset(:batch::text::json) AS new (id uuid, claim_no bigint, progress double precision, message text)
 WHERE jobs.id = new.id
   AND jobs.claim_no = new.claim_no
   AND COALESCE(jobs.status, '') = 'running'
   AND (jobs.progress, jobs.message) IS DISTINCT FROM (new.progress, new.message)
   AND jobs.id = ANY(ARRAY(SELECT held.id
                             FROM {schema}.jobs AS held
                            WHERE held.id = ANY(ARRAY(SELECT wanted.id FROM json_to_recordset(:batch::text::json) AS wanted (id uuid)))
                            ORDER BY held.id
                              FOR NO KEY UPDATE SKIP LOCKED))
RETURNING jobs.id::text;

-- name: cancel
-- Cancel what waits; ask what runs to stop.
UPDATE {schema}.jobs
   SET status = CASE WHEN status = 'running' THEN status ELSE 'cancelled' END,
       cancel_requested = true,
       completed_at = CASE WHEN status <> 'running' THEN {now} END,
       keep_until = CASE WHEN status <> 'running' THEN {now} + new.keep * interval '1 microsecond' END,
       rerun_at = NULL,
       updated_at = {now}
  FROM json_to_recordset(:batch::text::json) AS new (job_id uuid, keep bigint)
 WHERE id = new.job_id
   AND id = ANY(ARRAY(SELECT wanted.job_id FROM json_to_recordset(:batch::text::json) AS wanted (job_id uuid)))
   AND COALESCE(status, '') IN ({cancel}, {request_cancel})
   AND COALESCE(status, '') = ANY(ARRAY(SELECT json_array_elements_text(:statuses::text::json)))         --? only
   AND (schedule IS NULL OR status = 'running')
RETURNING id::text;

-- name: retry
-- Run again, from the beginning, unless another live job holds the key by now; of several with one key, the
-- live one, or the first.
WITH asked AS MATERIALIZED (
    SELECT id, key, row_number() OVER (PARTITION BY type, key ORDER BY COALESCE(status, '') IN ({finished}), id) AS place
      FROM {schema}.jobs
     WHERE id = ANY(ARRAY(SELECT job_id FROM json_to_recordset(:batch::text::json) AS new (job_id uuid)))
       AND COALESCE(status, '') IN ({retry})
)
UPDATE {schema}.jobs
   SET status = 'pending',
       attempts = 0,
       crashes = 0,
       deaths = 0,
       suspect = false,
       verdict = NULL,
       run_at = {now},
       due_at = CASE WHEN schedule IS NOT NULL THEN {now} END,
       worker_id = NULL,
       started_at = NULL,
       completed_at = NULL,
       keep_until = NULL,
       prune_error = NULL,
       error = NULL,
       unreadable_since = NULL,
       progress = NULL,
       message = NULL,
       cancel_requested = false,
       seen = CASE WHEN workflow_id IS NOT NULL THEN 'retried' END,
       result = NULL,
       updated_at = {now}
 WHERE id = ANY(ARRAY(SELECT id FROM asked WHERE place = 1 OR key IS NULL))
   AND COALESCE(status, '') IN ({retry})
   AND COALESCE(status, '') = ANY(ARRAY(SELECT json_array_elements_text(:statuses::text::json)))         --? only
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
 WHERE id = ANY(ARRAY(SELECT job_id FROM json_to_recordset(:batch::text::json) AS new (job_id uuid)))
   AND COALESCE(status, '') = ANY(ARRAY(SELECT json_array_elements_text(:statuses::text::json)))         --? only
RETURNING id::text, limit_key, status, queue;

-- name: edit
-- Give a job that waits another priority, time or queue. Parked for a limit, it waits on if it is due; blocked by another
-- job, it waits on in any case. What has aged keeps its age.
WITH given AS MATERIALIZED (
    SELECT COALESCE(:run_at::text::timestamptz, {now} + :delay::bigint * interval '1 microsecond') AS moment
)
UPDATE {schema}.jobs
   SET priority = COALESCE(:priority::bigint, priority),
       rank = CASE WHEN rank = -priority THEN -COALESCE(:priority::bigint, priority)
                   ELSE rank - (COALESCE(:priority::bigint, priority) - priority) * COALESCE(:aging::bigint, 0)
                        + (extract(epoch FROM COALESCE(given.moment, run_at) - run_at) * 1000000)::bigint END,
       queue = COALESCE(:queue::text, queue),
       status = CASE WHEN given.moment IS NULL THEN status
                     WHEN status = 'blocked' AND (limit_key IS NULL OR given.moment <= {now}) THEN status
                     WHEN given.moment <= {now} THEN 'pending'
                     WHEN status = 'retrying' THEN status
                     ELSE 'scheduled' END,
       run_at = COALESCE(given.moment, run_at),
       updated_at = {now}
  FROM given
 WHERE id = :id::text::uuid
   AND COALESCE(status, '') IN ({waiting})
   AND (schedule IS NULL OR given.moment IS NULL)
   AND (:aging::bigint IS NOT NULL OR rank = -priority OR COALESCE(:priority::bigint, priority) = priority)
RETURNING id::text, queue;

-- name: beat
-- A worker's sign of life, the first one makes its row; a dead worker stays dead.
INSERT INTO {schema}.workers (id, info, beat_no, started_at, beat_at)
VALUES (:id::text, :info::text, 1, {now}, {now})
ON CONFLICT (id) DO UPDATE
   SET beat_no = workers.beat_no + 1,
       beat_at = {now},
       info = excluded.info
 WHERE workers.died_at IS NULL
RETURNING beat_no, COALESCE(asked_at > COALESCE(stacks_at, started_at), false);

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
   SET paused_at = CASE WHEN NOT :paused::boolean THEN NULL
                        WHEN queues.resume_at <= {now} THEN {now}
                        ELSE COALESCE(queues.paused_at, {now}) END,
       resume_at = excluded.resume_at;

-- name: get
-- Whole jobs by id.
SELECT {columns}, payload::text, result::text
  FROM {schema}.jobs
 WHERE id = ANY(ARRAY(SELECT json_array_elements_text(:ids::text::json)::uuid));

-- name: attempts
-- The failed runs of a job, the newest first.
SELECT job_id::text, claim_no, attempt, worker_id, started_at, finished_at, status, error, trace
  FROM {schema}.attempts
 WHERE job_id = :id::text::uuid
 ORDER BY claim_no DESC;

-- name: last_runs
-- The newest failed run of each of these jobs: the end of its traceback, and when it was.
SELECT told.id, right(runs.trace, 8000), runs.finished_at
  FROM json_array_elements_text(:ids::text::json) AS told (id)
 CROSS JOIN LATERAL (SELECT trace, finished_at
                       FROM {schema}.attempts
                      WHERE job_id = told.id::uuid
                      ORDER BY claim_no DESC
                      LIMIT 1) AS runs;

-- name: search
-- A page of jobs, the newest first: a bounded walk of one index, filtered. Bodies are not read. "= ANY" and the order
-- leave the planner one index to choose: by a plain "status = ..." it may walk the primary key, and find nothing. A
-- payload with escapes that no text can hold is never looked into: that would be an error.
SELECT {columns}
  FROM (SELECT *
          FROM {schema}.jobs                                                --? newest
          FROM {schema}.jobs                                                --? listed
          FROM {schema}.jobs                                                --? entity
          FROM (SELECT * FROM {schema}.jobs WHERE status = 'running' OFFSET 0) AS jobs --? running
         WHERE id < :before::text::uuid
           AND id >= :since::text::uuid
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
   AND priority >= :lowest::bigint                                          --? lowest
   AND priority <= :highest::bigint                                         --? highest
   AND NOT EXISTS (SELECT 1 FROM json_array_elements_text(:error::text::json) AS word (value) --? error
                    WHERE COALESCE(strpos(lower(jobs.error COLLATE "C"), word.value), 0) = 0)  --? error
   AND NOT EXISTS (SELECT 1 FROM json_array_elements_text(:text::text::json) AS word (value) --? text
                    WHERE strpos(lower(jobs.type COLLATE "C"), word.value) = 0           --? text
                      AND COALESCE(strpos(lower(jobs.key COLLATE "C"), word.value), 0) = 0      --? text
                      AND COALESCE(strpos(lower(jobs.error COLLATE "C"), word.value), 0) = 0    --? text
                      AND COALESCE(strpos(lower(jobs.message COLLATE "C"), word.value), 0) = 0) --? text
   AND NOT EXISTS (SELECT 1 FROM json_array_elements(:payload::text::json) AS wanted (value) --? payload
                    WHERE COALESCE(CASE WHEN jobs.payload::text !~ E'[\\\\]u(0000|[dD][89a-fA-F])' --? payload
                                        THEN (jobs.payload #> ARRAY(SELECT json_array_elements_text(wanted.value -> 'path')))::text END --? payload
                                   <> ALL(ARRAY(SELECT json_array_elements_text(wanted.value -> 'texts'))), TRUE)) --? payload
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
         WHERE id < :before::text::uuid
           AND id >= :since::text::uuid
           AND status = ANY(ARRAY[:status::text]) AND status <> 'running'   --? listed
           AND entity_type = ANY(ARRAY[:entity_type::text])                 --? entity
           AND entity_id = :entity_id::text AND entity_type IS NOT NULL     --? entity
         ORDER BY
               status DESC,                                                 --? listed
               entity_type DESC,                                            --? entity
               id DESC
         LIMIT :scan::int) AS look;

-- name: counts
-- How many jobs have each of some statuses, counted up to a cap, all at one moment: counted one after the other, a job
-- that moves meanwhile would be in none. The planner does not know the status, by which it would find other indexes that
-- fit; the range keeps the order by status a real one, which only one index gives: for an equal status and a small cap it
-- would read the table from its start, past every job of the other statuses.
SELECT wanted.status,
       CASE wanted.status
       WHEN 'running' THEN (SELECT count(*)
                              FROM (SELECT 1
                                      FROM {schema}.jobs
                                     WHERE status = 'running'
                                     ORDER BY worker_id, id
                                     LIMIT :cap::int) AS counted)
       ELSE (SELECT count(*)
               FROM (SELECT 1
                       FROM {schema}.jobs
                      WHERE status BETWEEN wanted.status AND wanted.status
                        AND status <> 'running'
                      ORDER BY status, id
                      LIMIT :cap::int) AS counted)
       END
  FROM json_array_elements_text(:statuses::text::json) AS wanted (status);

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
