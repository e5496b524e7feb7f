-- Insert, promote, cancel, retry, delete and edit jobs, and pause queues.
-- The same names in the same order as in commands.postgres.sql; only this file has `insert_payloads`. How they are written: engine/script.py.

-- name: insert
-- Add jobs. A job is left out if its id or idempotency key exists, or if an unfinished job has its key.
INSERT INTO holdfast_jobs
       (id, type, queue, status, priority, rank, key, entity_type, entity_id,
        schedule, due_at, expires_at, workflow_id, node, idempotency_key,       --? special
        max_attempts, timeout, created_at, updated_at, run_at)
VALUES (:id, :type, :queue,
        CASE WHEN COALESCE(:run_at, {now} + :delay) > {now} THEN 'scheduled' ELSE 'pending' END, --? plain
        CASE WHEN :waits THEN 'blocked'                                         --? special
             WHEN COALESCE(:run_at, {now} + :delay) > {now} THEN 'scheduled' ELSE 'pending' END, --? special
        :priority,
        -:priority,                                                             --? plain
        CASE WHEN :aging IS NULL THEN -:priority ELSE COALESCE(:run_at, {now} + :delay) - :priority * :aging END, --? special
        :key, :entity_type, :entity_id,
        :schedule,                                                              --? special
        CASE WHEN :schedule IS NOT NULL THEN COALESCE(:run_at, {now} + :delay) END, --? special
        {now} + :expires, :workflow_id, :node, :idempotency_key,                --? special
        :max_attempts, :timeout, {now}, {now}, COALESCE(:run_at, {now} + :delay))
ON CONFLICT DO NOTHING;

-- name: insert_payloads
-- Add the payloads of new jobs.
INSERT INTO holdfast_payloads (job_id, payload)
VALUES (:id, :payload)
ON CONFLICT DO NOTHING;

-- name: wake
-- Send hints for queues. Nothing to do: the kernel reports every commit (wakeups.py).
SELECT :queues;

-- name: present
-- The ids that exist, among those given.
SELECT id
  FROM holdfast_jobs
 WHERE id IN (SELECT value FROM json_each(:ids));

-- name: holder
-- The unfinished job that has a key, and whether it recurs.
SELECT id, status, schedule IS NOT NULL
  FROM holdfast_jobs
 WHERE type = :type
   AND key = :key
   AND key IS NOT NULL
   AND status IN ({unfinished});

-- name: first_by_idempotency_key
-- The job that has an idempotency key, whatever its status.
SELECT id
  FROM holdfast_jobs INDEXED BY holdfast_jobs_idempotency
 WHERE type = :type
   AND idempotency_key = :idempotency_key
   AND idempotency_key IS NOT NULL;

-- name: replace
-- Give the unfinished job that has a key the values of a newer request: a waiting job runs with them, a running job runs
-- again with them.
UPDATE holdfast_jobs
   SET priority = :priority,
       rank = CASE WHEN :aging IS NULL THEN -:priority ELSE COALESCE(:run_at, {now} + :delay) - :priority * :aging END,
       expires_at = {now} + :expires,
       entity_type = :entity_type,
       entity_id = :entity_id,
       max_attempts = :max_attempts,
       timeout = :timeout,
       attempts = CASE WHEN status = 'running' THEN attempts ELSE 0 END,
       status = CASE WHEN status = 'blocked' AND limit_key IS NOT NULL AND NOT :moves THEN 'pending'
                     WHEN NOT :moves OR status = 'running' OR (status = 'blocked' AND limit_key IS NULL) THEN status
                     WHEN COALESCE(:run_at, {now} + :delay) > {now} THEN 'scheduled'
                     ELSE 'pending' END,
       run_at = CASE WHEN NOT :moves OR status = 'running' THEN run_at
                     ELSE COALESCE(:run_at, {now} + :delay) END,
       rerun_at = CASE WHEN status <> 'running' THEN NULL
                       WHEN :moves THEN COALESCE(:run_at, {now} + :delay)
                       ELSE {now} END,
       verdict = CASE WHEN status = 'running' THEN verdict END,
       unreadable_since = CASE WHEN status = 'running' THEN unreadable_since END,
       updated_at = {now}
 WHERE id = :holder
   AND status IN ({unfinished})
RETURNING id;
UPDATE holdfast_payloads
   SET payload = :payload
 WHERE job_id = :holder
   AND EXISTS (SELECT 1 FROM holdfast_jobs WHERE id = :holder AND status IN ({unfinished}));

-- name: promote
-- Make due jobs pending, the longest due first.
UPDATE holdfast_jobs
   SET status = 'pending',
       updated_at = {now}
 WHERE id IN (SELECT id
                FROM holdfast_jobs INDEXED BY holdfast_jobs_due
               WHERE status IN ({promote})
                 AND enabled
                 AND run_at <= {now}
               ORDER BY run_at, id
               LIMIT :limit)
RETURNING queue;

-- name: next_due
-- Microseconds until the next job is due, or until the rate of a key has capacity; 0 or less: now.
SELECT MIN(due)
  FROM (SELECT (SELECT run_at - {now}
                  FROM holdfast_jobs INDEXED BY holdfast_jobs_due
                 WHERE status IN ({promote})
                   AND enabled
                 ORDER BY run_at, id
                 LIMIT 1) AS due
         UNION ALL
        SELECT (SELECT wake_at - {now}
                  FROM holdfast_keys INDEXED BY holdfast_keys_wake
                 WHERE wake_at IS NOT NULL
                 ORDER BY wake_at
                 LIMIT 1));

-- name: cancel
-- Cancel waiting jobs, and ask running ones to stop.
UPDATE holdfast_jobs
   SET status = CASE WHEN status = 'running' THEN status ELSE 'cancelled' END,
       cancel_requested = 1,
       completed_at = CASE WHEN status <> 'running' THEN {now} END,
       keep_until = CASE WHEN status <> 'running' THEN {now} + :keep END,
       rerun_at = NULL,
       updated_at = {now}
 WHERE id = :job_id
   AND status IN ({cancel}, {request_cancel})
   AND status IN (SELECT value FROM json_each(:statuses))                       --? only
   AND (schedule IS NULL OR status = 'running')
RETURNING id;

-- name: retry
-- Run jobs again from the beginning, unless another unfinished job has the key.
UPDATE holdfast_jobs
   SET status = 'pending',
       attempts = 0,
       crashes = 0,
       deaths = 0,
       suspect = 0,
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
       cancel_requested = 0,
       seen = CASE WHEN workflow_id IS NOT NULL THEN 'retried' END,
       updated_at = {now}
 WHERE id = :job_id
   AND status IN ({retry})
   AND status IN (SELECT value FROM json_each(:statuses))                       --? only
   AND NOT EXISTS (SELECT 1
                     FROM holdfast_jobs AS live
                    WHERE live.type = holdfast_jobs.type
                      AND live.key = holdfast_jobs.key
                      AND live.key IS NOT NULL
                      AND live.status IN ({unfinished})
                      AND live.id <> holdfast_jobs.id)
RETURNING id, queue;
DELETE FROM holdfast_results
 WHERE job_id = :job_id
   AND EXISTS (SELECT 1 FROM holdfast_jobs WHERE id = :job_id AND status = 'pending');

-- name: delete
-- Delete jobs in any status. The run of a deleted job ends without a record.
DELETE FROM holdfast_jobs
 WHERE id = :job_id
   AND status IN (SELECT value FROM json_each(:statuses))                       --? only
RETURNING id, limit_key, status, queue;

-- name: edit
-- Give a waiting job another priority, time or queue. A job that is parked for a limit stays parked if it is due, one
-- that waits for another job stays blocked. A job that has aged keeps its age.
UPDATE holdfast_jobs
   SET priority = COALESCE(:priority, priority),
       rank = CASE WHEN rank = -priority THEN -COALESCE(:priority, priority)
                   ELSE rank - (COALESCE(:priority, priority) - priority) * COALESCE(:aging, 0)
                        + COALESCE(:run_at, {now} + :delay, run_at) - run_at END,
       queue = COALESCE(:queue, queue),
       status = CASE WHEN COALESCE(:run_at, :delay) IS NULL THEN status
                     WHEN status = 'blocked' AND (limit_key IS NULL OR COALESCE(:run_at, {now} + :delay) <= {now}) THEN status
                     WHEN COALESCE(:run_at, {now} + :delay) <= {now} THEN 'pending'
                     WHEN status = 'retrying' THEN status
                     ELSE 'scheduled' END,
       run_at = COALESCE(:run_at, {now} + :delay, run_at),
       updated_at = {now}
 WHERE id = :id
   AND status IN ({waiting})
   AND (schedule IS NULL OR COALESCE(:run_at, :delay) IS NULL)
   AND (:aging IS NOT NULL OR rank = -priority OR COALESCE(:priority, priority) = priority)
RETURNING id, queue;

-- name: pause
-- Pause a queue, or resume it.
INSERT INTO holdfast_queues (name, paused_at, resume_at)
VALUES (:name, CASE WHEN :paused THEN {now} END, COALESCE(:resume_at, {now} + :resume_in))
ON CONFLICT (name) DO UPDATE
   SET paused_at = CASE WHEN NOT :paused THEN NULL WHEN resume_at <= {now} THEN {now} ELSE COALESCE(paused_at, {now}) END,
       resume_at = excluded.resume_at;
