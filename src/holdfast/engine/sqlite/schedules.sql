-- What recurring jobs need. The same names, in the same order, as ../postgres/schedules.sql; written as statements.sql
-- says.

-- name: recur
-- The end of a recurring job's run: the row waits for its next one, whatever happened. Who asked for a run meanwhile
-- gets it first.
UPDATE holdfast_jobs
   SET status = CASE WHEN rerun_at <= {now} THEN 'pending' ELSE 'scheduled' END,
       attempts = 0,
       rank = CASE WHEN rank = -priority THEN rank ELSE rank + COALESCE(rerun_at, :run_at) - run_at END,
       run_at = COALESCE(rerun_at, :run_at),
       due_at = COALESCE(rerun_at, :due_at),
       last_run_at = CASE WHEN :ran THEN started_at ELSE last_run_at END,
       last_error = CASE WHEN :failed THEN :error WHEN :ran AND NOT :stopped THEN NULL ELSE last_error END,
       consecutive_failures = CASE WHEN :failed THEN consecutive_failures + 1
                                   WHEN :ran AND NOT :stopped THEN 0
                                   ELSE consecutive_failures END,
       error = CASE WHEN :failed THEN :error WHEN :ran AND NOT :stopped THEN NULL ELSE error END,
       worker_id = NULL,
       started_at = NULL,
       cancel_requested = 0,
       crashes = 0,
       suspect = 0,
       verdict = NULL,
       finish_no = claim_no,
       rerun_at = NULL,
       updated_at = {now}
 WHERE id = :id
   AND claim_no = :claim_no
   AND status = 'running'
   AND schedule IS NOT NULL;

-- name: find_schedule
-- A recurring job by its task and key, held for this transaction.
SELECT {columns}
  FROM holdfast_jobs
 WHERE type = :type
   AND key = :key
   AND key IS NOT NULL
   AND status IN ({unfinished});

-- name: renew_schedule
-- A recurring job as it is asked for now: enabled, with these arguments; its next run stays.
UPDATE holdfast_jobs
   SET schedule = :schedule,
       queue = :queue,
       priority = :priority,
       rank = CASE WHEN :aging IS NULL THEN -:priority ELSE run_at - :priority * :aging END,
       entity_type = :entity_type,
       entity_id = :entity_id,
       timeout = :timeout,
       enabled = CASE WHEN :enables THEN 1 ELSE enabled END,
       disabled_because = CASE WHEN NOT :enables THEN disabled_because END,
       updated_at = {now}
 WHERE id = :holder
   AND schedule IS NOT NULL;
UPDATE holdfast_payloads
   SET payload = :payload
 WHERE job_id = :holder;

-- name: enable_schedule
-- Let a recurring job run, or keep it from doing so; a run that has begun ends as it would.
UPDATE holdfast_jobs
   SET enabled = :enabled,
       disabled_because = :because,
       status = CASE WHEN :enabled OR status = 'running' THEN status ELSE 'scheduled' END,
       updated_at = {now}
 WHERE id = :id
   AND schedule IS NOT NULL;

-- name: move_schedule
-- Choose the next run of a recurring job; of one that runs, the run after this one.
UPDATE holdfast_jobs
   SET status = CASE WHEN status = 'running' THEN status
                     WHEN COALESCE(:run_at, {now} + :delay) > {now} THEN 'scheduled'
                     ELSE 'pending' END,
       rank = CASE WHEN status = 'running' OR rank = -priority THEN rank ELSE rank + COALESCE(:run_at, {now} + :delay) - run_at END,
       run_at = CASE WHEN status = 'running' THEN run_at ELSE COALESCE(:run_at, {now} + :delay) END,
       due_at = CASE WHEN status = 'running' THEN due_at ELSE COALESCE(:run_at, {now} + :delay) END,
       rerun_at = CASE WHEN status = 'running' THEN COALESCE(:run_at, {now} + :delay) END,
       updated_at = {now}
 WHERE id = :id
   AND schedule IS NOT NULL;

-- name: schedules
-- Recurring jobs by task and key, some at a time.
SELECT {columns}
  FROM holdfast_jobs INDEXED BY holdfast_jobs_recurring
 WHERE schedule IS NOT NULL
   AND (type, key) > (:type, :key)
 ORDER BY type, key
 LIMIT :limit;

-- name: recurring_types
-- The tasks that have recurring jobs: a step for each task, however many jobs there are.
WITH RECURSIVE seen (type) AS (
    SELECT MIN(type) FROM holdfast_jobs INDEXED BY holdfast_jobs_recurring WHERE schedule IS NOT NULL
     UNION ALL
    SELECT (SELECT MIN(type) FROM holdfast_jobs INDEXED BY holdfast_jobs_recurring WHERE schedule IS NOT NULL AND type > seen.type)
      FROM seen
     WHERE seen.type IS NOT NULL
)
SELECT type
  FROM seen
 WHERE type IS NOT NULL;
