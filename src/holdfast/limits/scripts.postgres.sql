-- Limits, counted from rows under the locks of their keys.
-- The same names in the same order as in scripts.sqlite.sql; only this file has `lock_keys`. How they are written: engine/script.py.

-- name: lock_keys
-- Lock keys for this transaction: the next one to lock them counts what this one has written.
SELECT key
  FROM {schema}.keys
 WHERE key = ANY(ARRAY(SELECT json_array_elements_text(:keys::text::json)))
 ORDER BY key
   FOR UPDATE;

-- name: capacities
-- How many jobs run under some keys, how many may, and which pending job has the turn of a key. A limit without keys
-- counts jobs by its name or its queue, one with keys by key. "= ANY" and the order leave the planner one index to
-- choose.
SELECT keys.key,
       COALESCE(limits.set_concurrency, limits.concurrency),
       COALESCE(limits.set_rate, limits.rate),
       COALESCE(limits.set_period, limits.period),
       keys.starts,
       first.id, first.queue, first.priority,                                                                          --? keyed
       NULL::text, NULL::text, NULL::bigint,                                                                           --? whole
       (extract(epoch FROM {now}) * 1000000)::bigint,
       (SELECT count(*) FROM (SELECT 1 FROM {schema}.jobs WHERE status = 'running' AND limit_key = ANY(ARRAY[keys.key]) --? keyed
                               ORDER BY limit_key OFFSET 0) AS counted)                                                --? keyed
       (SELECT count(*) FROM (SELECT 1 FROM {schema}.jobs WHERE status = 'running' AND limit_name = ANY(ARRAY[keys.key]) --? whole
                               ORDER BY limit_name OFFSET 0) AS counted)                                               --? whole
       + (SELECT count(*) FROM (SELECT 1 FROM {schema}.jobs WHERE status = 'running' AND limit_queue = ANY(ARRAY[keys.key]) --? whole
                                 ORDER BY limit_queue OFFSET 0) AS counted)                                            --? whole
  FROM {schema}.keys
  JOIN {schema}.limits ON limits.name = keys.name
  LEFT JOIN LATERAL (SELECT id::text, queue, priority                                                                  --? keyed
                       FROM {schema}.jobs                                                                              --? keyed
                      WHERE id = keys.turn_id AND COALESCE(status, '') = 'pending'                                     --? keyed
                      LIMIT 1) AS first ON true                                                                        --? keyed
 WHERE keys.key = ANY(ARRAY(SELECT json_array_elements_text(:keys::text::json)));

-- name: keys_with_parked
-- The keys that have parked jobs, among those given.
SELECT wanted.key
  FROM json_array_elements_text(:keys::text::json) AS wanted (key)
 WHERE EXISTS (SELECT 1 FROM {schema}.jobs
                WHERE status = 'blocked' AND limit_key = ANY(ARRAY[wanted.key])
                ORDER BY limit_key, rank, run_at, id LIMIT 1 OFFSET 0);

-- name: add_keys
-- Add keys that have no row yet.
INSERT INTO {schema}.keys (key, name)
SELECT key, name
  FROM json_to_recordset(:batch::text::json) AS new (key text, name text)
 ORDER BY key
ON CONFLICT DO NOTHING;

-- name: record_starts
-- Store when jobs of a key started, and if jobs are parked for it, when the next one may start.
UPDATE {schema}.keys
   SET starts = new.starts,
       wake_at = COALESCE({now} + new.wait * interval '1 microsecond', keys.wake_at)
  FROM json_to_recordset(:batch::text::json) AS new (key text, starts text, wait bigint)
 WHERE keys.key = new.key
   AND keys.key = ANY(ARRAY(SELECT wanted.key FROM json_to_recordset(:batch::text::json) AS wanted (key text)));

-- name: unpark
-- Return the first parked jobs of a key to the queue. If keys take turns: one job, at the end of the line (in the order
-- of `place`), unless a pending job of at least its priority has the key's turn.
UPDATE {schema}.jobs
   SET status = 'pending',
       rank = CASE WHEN jobs.rank = -jobs.priority OR NOT EXISTS (SELECT 1
                                                                    FROM {schema}.keys
                                                                    JOIN {schema}.limits ON limits.name = keys.name
                                                                   WHERE keys.key = jobs.limit_key
                                                                     AND limits.fair) THEN jobs.rank
                   ELSE jobs.rank + (extract(epoch FROM {now} - jobs.run_at) * 1000000)::bigint
                        + (SELECT new.place FROM json_to_recordset(:batch::text::json) AS new (key text, place int)
                            WHERE new.key = jobs.limit_key LIMIT 1) END,
       run_at = CASE WHEN EXISTS (SELECT 1
                                    FROM {schema}.keys
                                    JOIN {schema}.limits ON limits.name = keys.name
                                   WHERE keys.key = jobs.limit_key
                                     AND limits.fair)
                     THEN {now} + interval '1 microsecond' * (SELECT new.place
                                                                FROM json_to_recordset(:batch::text::json) AS new (key text, place int)
                                                               WHERE new.key = jobs.limit_key
                                                               LIMIT 1)
                     ELSE jobs.run_at END,
       updated_at = {now}
 WHERE id = ANY(ARRAY(SELECT best.id
                        FROM json_to_recordset(:batch::text::json) AS new (key text, size int)
                  CROSS JOIN LATERAL (SELECT id, priority
                                        FROM {schema}.jobs
                                       WHERE status = 'blocked'
                                         AND limit_key IS NOT NULL
                                         AND limit_key = new.key COLLATE "C"
                                       ORDER BY limit_key, rank, run_at, id
                                       LIMIT COALESCE((SELECT CASE WHEN limits.fair THEN 1 ELSE new.size END
                                                         FROM {schema}.keys
                                                         JOIN {schema}.limits ON limits.name = keys.name
                                                        WHERE keys.key = new.key COLLATE "C"
                                                        LIMIT 1), new.size)
                                         FOR NO KEY UPDATE SKIP LOCKED) AS best
                       WHERE NOT EXISTS (SELECT 1
                                           FROM {schema}.keys
                                           JOIN {schema}.limits ON limits.name = keys.name AND limits.fair
                             CROSS JOIN LATERAL (SELECT first.priority
                                                   FROM {schema}.jobs AS first
                                                  WHERE first.id = keys.turn_id AND COALESCE(first.status, '') = 'pending'
                                                  LIMIT 1) AS turn
                                          WHERE keys.key = new.key COLLATE "C"
                                            AND turn.priority >= best.priority
                                          OFFSET 0)))
RETURNING jobs.queue, jobs.limit_key, EXISTS (SELECT 1
                                                FROM {schema}.keys
                                                JOIN {schema}.limits ON limits.name = keys.name
                                               WHERE keys.key = jobs.limit_key
                                                 AND limits.fair), jobs.id::text;

-- name: set_turn
-- If keys take turns: store which job has the turn of a key.
UPDATE {schema}.keys
   SET turn_id = new.turn_id
  FROM json_to_recordset(:batch::text::json) AS new (key text, turn_id uuid)
 WHERE keys.key = new.key COLLATE "C"
   AND keys.key = ANY(ARRAY(SELECT wanted.key FROM json_to_recordset(:batch::text::json) AS wanted (key text)));

-- name: idle_turns
-- The keys, among those given, whose turn belongs to a job that has been pending for too long; with its type and queue.
SELECT keys.key, first.type, first.queue
  FROM {schema}.keys
  JOIN {schema}.jobs AS first ON first.id = keys.turn_id
 WHERE keys.key = ANY(ARRAY(SELECT json_array_elements_text(:keys::text::json)))
   AND COALESCE(first.status, '') = 'pending'
   AND first.updated_at < {now} - :idle::bigint * interval '1 microsecond';

-- name: due_keys
-- Keys whose rate has capacity again.
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
-- Keys with parked jobs, some at a time.
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

-- name: busy
-- Whether jobs of some queues are pending or parked, or a worker holds a job. If there are more parked jobs than the
-- search looks at, the answer is yes.
SELECT EXISTS (SELECT 1
                 FROM json_array_elements_text(:queues::text::json) AS wanted (queue)
                WHERE EXISTS (SELECT 1 FROM {schema}.jobs
                               WHERE status = 'pending' AND queue = wanted.queue
                               ORDER BY queue, type, suspect, rank, run_at, id LIMIT 1 OFFSET 0))
    OR EXISTS (SELECT 1 FROM {schema}.jobs WHERE status = 'running' AND worker_id = :worker::text)
    OR (SELECT COALESCE(bool_or(queue IN (SELECT json_array_elements_text(:queues::text::json))), false) OR count(*) = :scan::int
          FROM (SELECT queue
                  FROM {schema}.jobs
                 WHERE status = 'blocked' AND limit_key IS NOT NULL
                 ORDER BY limit_key, rank, run_at, id
                 LIMIT :scan::int) AS parked);

-- name: declare_limit
-- Add a limit of the code, or change it; an operator's numbers stay.
INSERT INTO {schema}.limits (name, concurrency, rate, period, keyed, fair, tasks, updated_at)
SELECT name, concurrency, rate, period, keyed, fair, tasks, {now}
  FROM json_to_recordset(:batch::text::json)
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
-- Store an operator's numbers for a limit; NULL: the code's count.
UPDATE {schema}.limits
   SET set_concurrency = :concurrency::integer,
       set_rate = :rate::integer,
       set_period = :period::bigint,
       updated_at = {now}
 WHERE name = :name::text
RETURNING name;

-- name: drop_limit
-- Delete a limit and its keys: a queue's, or one that the code no longer declares.
DELETE FROM {schema}.limits
 WHERE name = :name::text
RETURNING name;
DELETE FROM {schema}.keys
 WHERE name = :name::text;

-- name: wake_keys
-- Wake the keys of a limit whose numbers were changed, so that their parked jobs are looked at again.
UPDATE {schema}.keys
   SET wake_at = {now}
 WHERE name = :name::text;

-- name: mark_queue_limit
-- Count the running jobs of a queue under its new limit.
UPDATE {schema}.jobs
   SET limit_queue = :name::text
 WHERE status = 'running'
   AND worker_id IS NOT NULL
   AND queue = :queue::text
   AND limit_queue IS NULL;

-- name: limits
-- All limits, with the numbers of running and parked jobs, each counted up to a cap.
SELECT limits.name, limits.concurrency, limits.rate, limits.period, limits.keyed, limits.fair, limits.tasks,
       limits.set_concurrency, limits.set_rate, limits.set_period,
       (SELECT count(*) FROM (SELECT 1 FROM {schema}.jobs
                               WHERE status = 'running' AND limit_key IS NOT NULL
                                 AND limit_key >= limits.name || '=' AND limit_key < limits.name || '>'
                               ORDER BY limit_key LIMIT :cap::int) AS counted)
       + (SELECT count(*) FROM (SELECT 1 FROM {schema}.jobs
                                 WHERE status = 'running' AND limit_name = ANY(ARRAY[limits.name])
                                 ORDER BY limit_name LIMIT :cap::int) AS counted)
       + (SELECT count(*) FROM (SELECT 1 FROM {schema}.jobs
                                 WHERE status = 'running' AND limit_queue = ANY(ARRAY[limits.name])
                                 ORDER BY limit_queue LIMIT :cap::int) AS counted),
       (SELECT count(*) FROM (SELECT 1 FROM {schema}.jobs
                               WHERE status = 'blocked' AND limit_key IS NOT NULL
                                 AND limit_key >= limits.name || '=' AND limit_key < limits.name || '>'
                               ORDER BY limit_key, rank, run_at, id LIMIT :cap::int) AS counted)
  FROM {schema}.limits
 ORDER BY limits.name;

-- name: place
-- How many jobs are in front of a job, up to a cap: among those parked for its key, or among the pending ones of its
-- queue and type.
SELECT count(*)
  FROM (SELECT 1
          FROM {schema}.jobs
         WHERE status = 'blocked' AND limit_key IS NOT NULL AND limit_key = :limit_key::text       --? parked
         WHERE status = 'pending' AND queue = :queue::text AND type = :type::text AND NOT suspect  --? pending
           AND (rank, run_at, id) < (:rank::bigint, :run_at::text::timestamptz, :id::text::uuid)
         ORDER BY
               limit_key,                                                                          --? parked
               rank, run_at, id
         LIMIT :cap::int) AS counted;

-- name: prune_keys
-- Delete unused keys: no job runs or waits under them, and their last starts no longer count.
DELETE FROM {schema}.keys
 WHERE key = ANY(ARRAY(SELECT key
                         FROM (SELECT key, name, starts, wake_at
                                 FROM {schema}.keys
                                WHERE key > :after::text
                                ORDER BY key
                                LIMIT :limit::int
                                  FOR UPDATE SKIP LOCKED) AS few
                        WHERE few.key <> few.name
                          AND few.starts IS NULL
                          AND few.wake_at IS NULL
                          AND NOT EXISTS (SELECT 1 FROM {schema}.jobs
                                           WHERE status = 'running' AND limit_key = ANY(ARRAY[few.key])
                                           ORDER BY limit_key LIMIT 1 OFFSET 0)
                          AND NOT EXISTS (SELECT 1 FROM {schema}.jobs
                                           WHERE status = 'blocked' AND limit_key = ANY(ARRAY[few.key])
                                           ORDER BY limit_key, rank, run_at, id LIMIT 1 OFFSET 0)));

-- name: keys_edge
-- The last of the keys that prune_keys searches, and their number.
SELECT max(key), count(*)
  FROM (SELECT key
          FROM {schema}.keys
         WHERE key > :after::text
         ORDER BY key
         LIMIT :limit::int) AS look;
