-- Limits, counted from rows under the locks of their keys.
-- The same names in the same order as in scripts.postgres.sql; only PostgreSQL has `lock_keys`. How they are written: engine/script.py.

-- name: capacities
-- How many jobs run under some keys, how many may, and which pending job has the turn of a key. A limit without keys
-- counts jobs by its name or its queue, one with keys by key.
SELECT keys.key,
       COALESCE(limits.set_concurrency, limits.concurrency),
       COALESCE(limits.set_rate, limits.rate),
       COALESCE(limits.set_period, limits.period),
       keys.starts,
       first.id, first.queue, first.priority,                                                        --? keyed
       NULL, NULL, NULL,                                                                             --? whole
       {now},
       (SELECT COUNT(*) FROM holdfast_jobs INDEXED BY holdfast_jobs_keyed                            --? keyed
         WHERE status = 'running' AND limit_key = keys.key)                --? keyed
       (SELECT COUNT(*) FROM holdfast_jobs INDEXED BY holdfast_jobs_slots                            --? whole
         WHERE status = 'running' AND limit_name = keys.key)              --? whole
       + (SELECT COUNT(*) FROM holdfast_jobs INDEXED BY holdfast_jobs_crowd                          --? whole
           WHERE status = 'running' AND limit_queue = keys.key)          --? whole
  FROM holdfast_keys AS keys
 CROSS JOIN holdfast_limits AS limits ON limits.name = keys.name
  LEFT JOIN holdfast_jobs AS first ON first.id = keys.turn_id AND COALESCE(first.status, '') = 'pending' --? keyed
 WHERE keys.key IN (SELECT value FROM json_each(:keys));

-- name: keys_with_parked
-- The keys that have parked jobs, among those given.
SELECT wanted.value
  FROM json_each(:keys) AS wanted
 WHERE EXISTS (SELECT 1 FROM holdfast_jobs INDEXED BY holdfast_jobs_parked
                WHERE status = 'blocked' AND limit_key = wanted.value);

-- name: add_keys
-- Add keys that have no row yet.
INSERT INTO holdfast_keys (key, name)
VALUES (:key, :name)
ON CONFLICT DO NOTHING;

-- name: record_starts
-- Store when jobs of a key started, and if jobs are parked for it, when the next one may start.
UPDATE holdfast_keys
   SET starts = :starts,
       wake_at = COALESCE({now} + :wait, wake_at)
 WHERE key = :key;

-- name: unpark
-- Return the first parked jobs of a key to the queue. If keys take turns: one job, at the end of the line (in the order
-- of `place`), unless a pending job of at least its priority has the key's turn.
UPDATE holdfast_jobs
   SET status = 'pending',
       rank = CASE WHEN rank = -priority OR NOT EXISTS (SELECT 1
                                                          FROM holdfast_keys AS keys
                                                          JOIN holdfast_limits AS limits ON limits.name = keys.name
                                                         WHERE keys.key = :key
                                                           AND limits.fair) THEN rank ELSE rank + {now} + :place - run_at END,
       run_at = CASE WHEN EXISTS (SELECT 1
                                    FROM holdfast_keys AS keys
                                    JOIN holdfast_limits AS limits ON limits.name = keys.name
                                   WHERE keys.key = :key
                                     AND limits.fair) THEN {now} + :place ELSE run_at END,
       updated_at = {now}
 WHERE id IN (SELECT best.id
                FROM (SELECT id, priority
                        FROM holdfast_jobs INDEXED BY holdfast_jobs_parked
                       WHERE status = 'blocked'
                         AND limit_key = :key
                       ORDER BY rank, run_at, id
                       LIMIT COALESCE((SELECT CASE WHEN limits.fair THEN 1 ELSE :size END
                                         FROM holdfast_keys AS keys
                                         JOIN holdfast_limits AS limits ON limits.name = keys.name
                                        WHERE keys.key = :key), :size)) AS best
               WHERE NOT EXISTS (SELECT 1
                                   FROM holdfast_keys AS keys
                             CROSS JOIN holdfast_limits AS limits ON limits.name = keys.name
                             CROSS JOIN holdfast_jobs AS first ON first.id = keys.turn_id
                                  WHERE keys.key = :key
                                    AND limits.fair
                                    AND COALESCE(first.status, '') = 'pending'
                                    AND first.priority >= best.priority))
RETURNING queue, limit_key, EXISTS (SELECT 1
                                      FROM holdfast_keys AS keys
                                      JOIN holdfast_limits AS limits ON limits.name = keys.name
                                     WHERE keys.key = :key
                                       AND limits.fair), id;

-- name: set_turn
-- If keys take turns: store which job has the turn of a key.
UPDATE holdfast_keys
   SET turn_id = :turn_id
 WHERE key = :key;

-- name: idle_turns
-- The keys, among those given, whose turn belongs to a job that has been pending for too long; with its type and queue.
SELECT keys.key, first.type, first.queue
  FROM json_each(:keys) AS wanted
 CROSS JOIN holdfast_keys AS keys ON keys.key = wanted.value
 CROSS JOIN holdfast_jobs AS first ON first.id = keys.turn_id
 WHERE COALESCE(first.status, '') = 'pending'
   AND first.updated_at < {now} - :idle;

-- name: due_keys
-- Keys whose rate has capacity again.
UPDATE holdfast_keys
   SET wake_at = NULL
 WHERE key IN (SELECT key
                 FROM holdfast_keys INDEXED BY holdfast_keys_wake
                WHERE wake_at IS NOT NULL
                  AND wake_at <= {now}
                ORDER BY wake_at
                LIMIT :limit)
RETURNING key;

-- name: waiting_keys
-- Keys with parked jobs, some at a time.
WITH RECURSIVE seen (key, number) AS (
    SELECT (SELECT MIN(limit_key) FROM holdfast_jobs INDEXED BY holdfast_jobs_parked
             WHERE status = 'blocked' AND limit_key > :after), 1
     UNION ALL
    SELECT (SELECT MIN(limit_key) FROM holdfast_jobs INDEXED BY holdfast_jobs_parked
             WHERE status = 'blocked' AND limit_key > seen.key), seen.number + 1
      FROM seen
     WHERE seen.key IS NOT NULL
       AND seen.number < :limit
)
SELECT key
  FROM seen
 WHERE key IS NOT NULL;

-- name: busy
-- Whether jobs of some queues are pending or parked, or a worker holds a job. If there are more parked jobs than the
-- search looks at, the answer is yes.
SELECT EXISTS (SELECT 1
                 FROM json_each(:queues) AS wanted
                WHERE EXISTS (SELECT 1 FROM holdfast_jobs INDEXED BY holdfast_jobs_claim
                               WHERE status = 'pending' AND queue = wanted.value))
    OR EXISTS (SELECT 1 FROM holdfast_jobs INDEXED BY holdfast_jobs_held WHERE status = 'running' AND worker_id = :worker)
    OR (SELECT COALESCE(MAX(queue IN (SELECT value FROM json_each(:queues))), 0) OR COUNT(*) = :scan
          FROM (SELECT queue
                  FROM holdfast_jobs INDEXED BY holdfast_jobs_parked
                 WHERE status = 'blocked' AND limit_key IS NOT NULL
                 ORDER BY limit_key, rank, run_at, id
                 LIMIT :scan));

-- name: declare_limit
-- Add a limit of the code, or change it; an operator's numbers stay.
INSERT INTO holdfast_limits (name, concurrency, rate, period, keyed, fair, tasks, updated_at)
VALUES (:name, :concurrency, :rate, :period, :keyed, :fair, :tasks, {now})
ON CONFLICT (name) DO UPDATE
   SET concurrency = excluded.concurrency,
       rate = excluded.rate,
       period = excluded.period,
       keyed = excluded.keyed,
       fair = excluded.fair,
       tasks = excluded.tasks,
       updated_at = excluded.updated_at
 WHERE (holdfast_limits.concurrency, holdfast_limits.rate, holdfast_limits.period, holdfast_limits.keyed, holdfast_limits.fair, holdfast_limits.tasks)
    IS NOT (excluded.concurrency, excluded.rate, excluded.period, excluded.keyed, excluded.fair, excluded.tasks);

-- name: set_limit
-- Store an operator's numbers for a limit; NULL: the code's count.
UPDATE holdfast_limits
   SET set_concurrency = :concurrency,
       set_rate = :rate,
       set_period = :period,
       updated_at = {now}
 WHERE name = :name
RETURNING name;

-- name: drop_limit
-- Delete a limit and its keys: a queue's, or one that the code no longer declares.
DELETE FROM holdfast_limits
 WHERE name = :name
RETURNING name;
DELETE FROM holdfast_keys
 WHERE name = :name;

-- name: wake_keys
-- Wake the keys of a limit whose numbers were changed, so that their parked jobs are looked at again.
UPDATE holdfast_keys
   SET wake_at = {now}
 WHERE name = :name;

-- name: mark_queue_limit
-- Count the running jobs of a queue under its new limit.
UPDATE holdfast_jobs INDEXED BY holdfast_jobs_held
   SET limit_queue = :name
 WHERE status = 'running'
   AND worker_id IS NOT NULL
   AND queue = :queue
   AND limit_queue IS NULL;

-- name: limits
-- All limits, with the numbers of running and parked jobs, each counted up to a cap.
SELECT limits.name, limits.concurrency, limits.rate, limits.period, limits.keyed, limits.fair, limits.tasks,
       limits.set_concurrency, limits.set_rate, limits.set_period,
       (SELECT COUNT(*) FROM (SELECT 1 FROM holdfast_jobs INDEXED BY holdfast_jobs_keyed
                               WHERE status = 'running' AND limit_key >= limits.name || '=' AND limit_key < limits.name || '>' LIMIT :cap))
       + (SELECT COUNT(*) FROM (SELECT 1 FROM holdfast_jobs INDEXED BY holdfast_jobs_slots
                                 WHERE status = 'running' AND limit_name = limits.name LIMIT :cap))
       + (SELECT COUNT(*) FROM (SELECT 1 FROM holdfast_jobs INDEXED BY holdfast_jobs_crowd
                                 WHERE status = 'running' AND limit_queue = limits.name LIMIT :cap)),
       (SELECT COUNT(*) FROM (SELECT 1 FROM holdfast_jobs INDEXED BY holdfast_jobs_parked
                               WHERE status = 'blocked' AND limit_key >= limits.name || '=' AND limit_key < limits.name || '>' LIMIT :cap))
  FROM holdfast_limits AS limits
 ORDER BY limits.name;

-- name: place
-- How many jobs are in front of a job, up to a cap: among those parked for its key, or among the pending ones of its
-- queue and type.
SELECT COUNT(*)
  FROM (SELECT 1
          FROM holdfast_jobs INDEXED BY holdfast_jobs_parked                                     --? parked
         WHERE status = 'blocked' AND limit_key = :limit_key           --? parked
          FROM holdfast_jobs INDEXED BY holdfast_jobs_claim                                      --? pending
         WHERE status = 'pending' AND queue = :queue AND type = :type AND suspect = 0            --? pending
           AND (rank, run_at, id) < (:rank, :run_at, :id)
         LIMIT :cap);

-- name: prune_keys
-- Delete unused keys: no job runs or waits under them, and their last starts no longer count.
DELETE FROM holdfast_keys
 WHERE key IN (SELECT key
                 FROM (SELECT keys.key, keys.name, keys.starts, keys.wake_at
                         FROM holdfast_keys AS keys
                        WHERE keys.key > :after
                        ORDER BY keys.key
                        LIMIT :limit) AS few
                WHERE few.key <> few.name
                  AND few.starts IS NULL
                  AND few.wake_at IS NULL
                  AND NOT EXISTS (SELECT 1 FROM holdfast_jobs INDEXED BY holdfast_jobs_keyed
                                   WHERE status = 'running' AND limit_key = few.key)
                  AND NOT EXISTS (SELECT 1 FROM holdfast_jobs INDEXED BY holdfast_jobs_parked
                                   WHERE status = 'blocked' AND limit_key = few.key));

-- name: keys_edge
-- The last of the keys that prune_keys searches, and their number.
SELECT MAX(key), COUNT(*)
  FROM (SELECT key
          FROM holdfast_keys
         WHERE key > :after
         ORDER BY key
         LIMIT :limit);
