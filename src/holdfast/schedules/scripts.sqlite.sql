-- Recurring jobs.
-- The same names in the same order as in scripts.postgres.sql. How they are written: engine/script.py.

-- name: find_schedule
-- A recurring job by its task and key, locked for this transaction.
SELECT {columns}
  FROM holdfast_jobs
 WHERE type = :type
   AND key = :key
   AND key IS NOT NULL
   AND status IN ({unfinished});

-- name: renew_schedule
-- Enable a recurring job and give it new arguments and a new schedule; its next run stays. `updated_at` stays too:
-- applications declare their schedules at each start, and a row that was written later than now proves a step of the
-- clock (clock_repair.py).
UPDATE holdfast_jobs
   SET schedule = :schedule,
       queue = :queue,
       priority = :priority,
       rank = CASE WHEN :aging IS NULL THEN -:priority ELSE run_at - :priority * :aging END,
       entity_type = :entity_type,
       entity_id = :entity_id,
       timeout = :timeout,
       enabled = CASE WHEN :enables THEN 1 ELSE enabled END,
       crashes = CASE WHEN :enables AND NOT enabled THEN 0 ELSE crashes END,
       disabled_because = CASE WHEN NOT :enables THEN disabled_because END
 WHERE id = :holder
   AND schedule IS NOT NULL;
UPDATE holdfast_payloads
   SET payload = :payload
 WHERE job_id = :holder;

-- name: enable_schedule
-- Enable or disable a recurring job; a run that has begun goes on to its end.
UPDATE holdfast_jobs
   SET enabled = :enabled,
       disabled_because = :because,
       crashes = CASE WHEN :enabled THEN 0 ELSE crashes END,
       status = CASE WHEN :enabled OR status = 'running' THEN status ELSE 'scheduled' END,
       updated_at = max(updated_at, {now})
 WHERE id = :id
   AND schedule IS NOT NULL;

-- name: move_schedule
-- Choose the next run of a recurring job; if it is running, the run after this one.
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

-- name: disabled_schedules
-- Recurring jobs that were disabled, but not by an operator, and why.
SELECT type, key, disabled_because
  FROM holdfast_jobs INDEXED BY holdfast_jobs_disabled
 WHERE disabled_because IS NOT NULL
 ORDER BY type, key
 LIMIT :limit;

-- name: recurring_types
-- The tasks that have recurring jobs: one step of an index for each task.
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
