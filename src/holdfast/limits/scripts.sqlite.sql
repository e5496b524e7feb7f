-- Limits, counted from rows under the locks of their keys.
-- The same statements, in the same order, as in scripts.postgres.sql, except lock_keys. How they are written: engine/statements.py.

-- name: capacities
-- How many run under some keys, what is allowed, and which pending job has the turn of a key. A limit counts by its name or
-- its queue, or by its keys.
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

-- name: awaited
-- Which of some keys jobs wait for.
SELECT wanted.value
  FROM json_each(:keys) AS wanted
 WHERE EXISTS (SELECT 1 FROM holdfast_jobs INDEXED BY holdfast_jobs_parked
                WHERE status = 'blocked' AND limit_key = wanted.value);

-- name: add_keys
-- Keys that are seen for the first time.
INSERT INTO holdfast_keys (key, name)
VALUES (:key, :name)
ON CONFLICT DO NOTHING;

-- name: record_starts
-- Remember when jobs of a key started, and when the next may, if some wait for that.
UPDATE holdfast_keys
   SET starts = :starts,
       wake_at = COALESCE({now} + :wait, wake_at)
 WHERE key = :key;

-- name: unpark
-- The best that wait for a key go back in line. Where keys take turns, one of them, at its end (in the order of :place):
-- unless a pending job has the key's turn, whose priority is not lower.
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
-- Where keys take turns: which job has the turn of a key.
UPDATE holdfast_keys
   SET turn_id = :turn_id
 WHERE key = :key;

-- name: idle_turns
-- Of some keys, those whose turn belongs to a job that has been pending for so long, with its type and queue.
SELECT keys.key, first.type, first.queue
  FROM json_each(:keys) AS wanted
 CROSS JOIN holdfast_keys AS keys ON keys.key = wanted.value
 CROSS JOIN holdfast_jobs AS first ON first.id = keys.turn_id
 WHERE COALESCE(first.status, '') = 'pending'
   AND first.updated_at < {now} - :idle;

-- name: due_keys
-- Keys for which time has made room.
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
-- Keys that jobs wait for, some at a time.
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
-- Whether jobs of some queues are pending or parked, or a worker holds any. More parked jobs than it looks at count as one.
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
-- A limit as the code has it; what an operator has set stays.
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
-- What an operator wants instead of the code's; NULL: the code's.
UPDATE holdfast_limits
   SET set_concurrency = :concurrency,
       set_rate = :rate,
       set_period = :period,
       updated_at = {now}
 WHERE name = :name
RETURNING name;

-- name: drop_limit
-- A limit that is no more: a queue's, or one that is gone from the code.
DELETE FROM holdfast_limits
 WHERE name = :name
RETURNING name;
DELETE FROM holdfast_keys
 WHERE name = :name;

-- name: wake_keys
-- A limit was changed: all that wait for it look again.
UPDATE holdfast_keys
   SET wake_at = {now}
 WHERE name = :name;

-- name: mark_queue_limit
-- What runs in a queue counts under its limit from now on.
UPDATE holdfast_jobs INDEXED BY holdfast_jobs_held
   SET limit_queue = :name
 WHERE status = 'running'
   AND worker_id IS NOT NULL
   AND queue = :queue
   AND limit_queue IS NULL;

-- name: limits
-- Every limit, what runs under it, and what is parked for it, counted up to a cap.
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
-- How many stand in line in front of a job: of those parked for its key, or pending beside it; up to a cap.
SELECT COUNT(*)
  FROM (SELECT 1
          FROM holdfast_jobs INDEXED BY holdfast_jobs_parked                                     --? parked
         WHERE status = 'blocked' AND limit_key = :limit_key           --? parked
          FROM holdfast_jobs INDEXED BY holdfast_jobs_claim                                      --? pending
         WHERE status = 'pending' AND queue = :queue AND type = :type AND suspect = 0            --? pending
           AND (rank, run_at, id) < (:rank, :run_at, :id)
         LIMIT :cap);

-- name: prune_keys
-- Forget keys that nobody uses: no job runs or waits under them, and their last starts are over.
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
-- How far that look went: the last key, and how many there were.
SELECT MAX(key), COUNT(*)
  FROM (SELECT key
          FROM holdfast_keys
         WHERE key > :after
         ORDER BY key
         LIMIT :limit);
