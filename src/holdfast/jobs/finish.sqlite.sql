-- Write how runs ended.
-- The same names in the same order as in finish.postgres.sql; only this file has `insert_results`, as results are in a
-- table of their own. How they are written: engine/script.py.

-- name: complete
-- Write the most frequent end: the run returned, and nothing else was asked of the row. One statement for all jobs that
-- have the same claim number and are kept equally long. Rows that do not match (a lost claim, a job that is to run again
-- or has a verdict) are left to `finish`. The status is compared through COALESCE so that the planner uses the primary
-- key, and never the index of running rows.
UPDATE holdfast_jobs
   SET status = 'completed',
       completed_at = {now},
       keep_until = {now} + :keep,
       error = NULL,
       unreadable_since = NULL,
       finish_no = claim_no,
       updated_at = {now}
 WHERE id IN (SELECT value FROM json_each(:ids))
   AND claim_no = :claim_no
   AND COALESCE(status, '') = 'running'
   AND rerun_at IS NULL
   AND deaths = 0
   AND verdict IS NULL
   AND schedule IS NULL;

-- name: finish
-- Write how runs ended, each only while its claim holds. The row may have changed during the run: if its payload was
-- replaced, the job runs again; if the job was asked to stop, it is cancelled instead of retried.
UPDATE holdfast_jobs
   SET status = CASE WHEN rerun_at > {now} THEN 'scheduled'
                     WHEN rerun_at IS NOT NULL THEN 'pending'
                     WHEN cancel_requested AND schedule IS NULL AND :status NOT IN ('completed', 'failed') THEN 'cancelled'
                     ELSE :status END,
       attempts = CASE WHEN rerun_at IS NOT NULL THEN 0 ELSE attempts - :given_back END,
       run_at = COALESCE(rerun_at, CASE WHEN :status IN ('retrying', 'scheduled') THEN {now} + :delay ELSE run_at END),
       worker_id = CASE WHEN rerun_at IS NULL AND :final THEN worker_id END,
       started_at = CASE WHEN rerun_at IS NULL AND :final THEN started_at END,
       completed_at = CASE WHEN rerun_at IS NULL AND (:final OR (cancel_requested AND schedule IS NULL)) THEN {now} END,
       keep_until = CASE WHEN rerun_at IS NULL AND (:final OR (cancel_requested AND schedule IS NULL)) THEN {now} + :keep END,
       error = CASE WHEN :status <> 'completed' THEN COALESCE(:error, error) END,
       cancel_requested = CASE WHEN rerun_at IS NULL AND schedule IS NULL THEN cancel_requested ELSE 0 END,
       crashes = CASE WHEN :blameless AND NOT :final THEN 0 ELSE crashes + :crashed END,
       deaths = CASE WHEN :blameless THEN 0 ELSE deaths + :died END,
       suspect = CASE WHEN :blameless THEN 0 ELSE suspect END,
       verdict = NULL,
       unreadable_since = CASE WHEN :unreadable AND rerun_at IS NULL THEN COALESCE(unreadable_since, {now}) END,
       finish_no = claim_no,
       rerun_at = NULL,
       updated_at = {now}
 WHERE id = :id
   AND claim_no = :claim_no
   AND status = 'running';

-- name: insert_results
-- Add the results of jobs that were completed.
INSERT INTO holdfast_results (job_id, result)
VALUES (:id, :result)
ON CONFLICT (job_id) DO UPDATE SET result = excluded.result;

-- name: finished
-- The rows of finishes that changed nothing: each was applied before, or its claim is lost.
SELECT id, finish_no, claim_no, status
  FROM holdfast_jobs
 WHERE id IN (SELECT value FROM json_each(:ids));

-- name: record_attempts
-- Store a failed run (or any run of a recurring job) with its job; the newest 50 of a job are kept.
INSERT INTO holdfast_attempts
       (job_id, claim_no, attempt, worker_id, started_at, finished_at, status, error, trace)
SELECT id, :claim_no, :attempt, :worker_id, :started_at, {now}, status, :error, :trace
  FROM holdfast_jobs
 WHERE id = :id
ON CONFLICT DO NOTHING;
DELETE FROM holdfast_attempts
 WHERE job_id = :id
   AND claim_no <= (SELECT claim_no
                      FROM holdfast_attempts
                     WHERE job_id = :id
                     ORDER BY claim_no DESC
                     LIMIT 1 OFFSET 50);

-- name: recur
-- Write the end of a recurring job's run: the row waits for its next run, whatever happened. A run that was requested
-- meanwhile (`rerun_at`) comes first. The worker counted the next run from `worker_now`; if the clock was set back during
-- the run, it is counted from the new time instead.
UPDATE holdfast_jobs
   SET status = CASE WHEN rerun_at <= {now} THEN 'pending' ELSE 'scheduled' END,
       attempts = 0,
       rank = CASE WHEN rank = -priority THEN rank
                   ELSE rank + COALESCE(rerun_at, :run_at - CASE WHEN :worker_now > {now} + 2000000 THEN :worker_now - {now} ELSE 0 END) - run_at END,
       run_at = COALESCE(rerun_at, :run_at - CASE WHEN :worker_now > {now} + 2000000 THEN :worker_now - {now} ELSE 0 END),
       due_at = COALESCE(rerun_at, :due_at - CASE WHEN :worker_now > {now} + 2000000 THEN :worker_now - {now} ELSE 0 END),
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
