-- What recurring jobs need. The same names, in the same order, as ../postgres/schedules.sql; written as statements.sql
-- says.

-- name: recur
-- The end of a recurring job's run: the row waits for its next one, whatever happened. Who asked for a run meanwhile
-- gets it first. The worker counted from `told_at`; if the clock went back during the run, the row counts from now.
UPDATE holdfast_jobs
   SET status = CASE WHEN rerun_at <= {now} THEN 'pending' ELSE 'scheduled' END,
       attempts = 0,
       rank = CASE WHEN rank = -priority THEN rank
                   ELSE rank + COALESCE(rerun_at, :run_at - CASE WHEN :told_at > {now} + 2000000 THEN :told_at - {now} ELSE 0 END) - run_at END,
       run_at = COALESCE(rerun_at, :run_at - CASE WHEN :told_at > {now} + 2000000 THEN :told_at - {now} ELSE 0 END),
       due_at = COALESCE(rerun_at, :due_at - CASE WHEN :told_at > {now} + 2000000 THEN :told_at - {now} ELSE 0 END),
       last_run_at = CASE WHEN :ran THEN started_at ELSE last_run_at END,
       last_error = CASE WHEN :failed THEN :error WHEN :ran AND NOT :stopped THEN NULL ELSE last_error END,
       consecutive_failures = CASE WHEN :failed THEN consecutive_failures + 1
                                   WHEN :ran AND NOT :stopped THEN 0
                                   ELSE consecutive_failures END,
       error = CASE WHEN :failed THEN :error WHEN :ran AND NOT :stopped THEN NULL ELSE error END,
       worker_id = NULL,
       started_at = NULL,
       cancel_requested = 0,
       crashes = CASE WHEN NOT :ran THEN crashes WHEN :died AND :because IS NULL THEN crashes + :crashed ELSE 0 END,
       deaths = CASE WHEN :died OR NOT :ran OR :because IS NOT NULL THEN deaths + :died ELSE 0 END,
       suspect = CASE WHEN :died OR NOT :ran OR :because IS NOT NULL THEN suspect ELSE 0 END,
       enabled = CASE WHEN :because IS NULL THEN enabled ELSE 0 END,
       disabled_because = COALESCE(:because, disabled_because),
       verdict = NULL,
       unreadable_since = NULL,
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
-- A recurring job as it is asked for now: enabled, with these arguments; its next run stays. `updated_at` stays too: applications
-- ask for their schedules at each start, and a row written later than now is the proof of a step of the clock (clock_steps.py).
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
-- Let a recurring job run, or keep it from doing so; a run that has begun ends as it would.
UPDATE holdfast_jobs
   SET enabled = :enabled,
       disabled_because = :because,
       crashes = CASE WHEN :enabled THEN 0 ELSE crashes END,
       status = CASE WHEN :enabled OR status = 'running' THEN status ELSE 'scheduled' END,
       updated_at = max(updated_at, {now})
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

-- name: disabled_schedules
-- Recurring jobs that were not disabled by an operator, and why.
SELECT type, key, disabled_because
  FROM holdfast_jobs INDEXED BY holdfast_jobs_disabled
 WHERE disabled_because IS NOT NULL
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

-- name: clock
-- What time it is here.
SELECT {now};

-- name: ahead
-- Of the jobs that wait for their time, some at a time: those that were last written later than now, and have a record of a run.
SELECT look.id, look.run_at, look.due_at, look.updated_at, look.schedule, runs.finished_at
  FROM (SELECT id, run_at, due_at, updated_at, schedule, claim_no
          FROM holdfast_jobs INDEXED BY holdfast_jobs_due
         WHERE status IN ({promote})
           AND enabled
           AND (run_at, id) > (:run_at, COALESCE(:id, ''))
         ORDER BY run_at, id
         LIMIT :limit) AS look
 CROSS JOIN holdfast_attempts AS runs ON runs.job_id = look.id AND runs.claim_no = look.claim_no
 WHERE look.updated_at > {now};

-- name: ahead_edge
-- The last job of that look, if there may be more after it.
SELECT run_at, id
  FROM holdfast_jobs INDEXED BY holdfast_jobs_due
 WHERE status IN ({promote})
   AND enabled
   AND (run_at, id) > (:run_at, COALESCE(:id, ''))
 ORDER BY run_at, id
 LIMIT 1 OFFSET :limit - 1;

-- name: pull_in
-- Let a job that waits run sooner, unless something has written it meanwhile.
UPDATE holdfast_jobs
   SET rank = CASE WHEN rank = -priority THEN rank ELSE rank + :run_at - run_at END,
       run_at = :run_at,
       due_at = :due_at,
       updated_at = {now}
 WHERE id = :id
   AND status IN ({promote})
   AND updated_at = :written
RETURNING queue;
