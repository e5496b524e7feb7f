-- Write how runs ended.
-- The same names in the same order as in finish.sqlite.sql; only SQLite has `insert_results`: here the result is in the
-- job's row. How they are written: engine/script.py.

-- name: complete
-- Write the most frequent end: the run returned, and nothing else was asked of the row. Rows that do not match (a lost
-- claim, a job that is to run again or has a verdict) are left to `finish`.
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
-- Write how runs ended, each only while its claim holds. The row may have changed during the run: if its payload was
-- replaced, the job runs again; if the job was asked to stop, it is cancelled instead of retried. The status is compared
-- through COALESCE so that the planner uses the primary key, and never the index of running rows.
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

-- name: finished
-- The rows of finishes that changed nothing: each was applied before, or its row is locked by another transaction, or its
-- claim is lost.
SELECT id::text, finish_no, claim_no, status
  FROM {schema}.jobs
 WHERE id = ANY(ARRAY(SELECT json_array_elements_text(:ids::text::json)::uuid));

-- name: record_attempts
-- Store a failed run (or any run of a recurring job) with its job; the newest 50 of a job are kept.
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

-- name: recur
-- Write the end of a recurring job's run: the row waits for its next run, whatever happened. A run that was requested
-- meanwhile (`rerun_at`) comes first. The worker counted the next run from `worker_now`; if the database's clock was set
-- back during the run, it is counted from the new time instead.
WITH new AS MATERIALIZED (
    SELECT told.id, claim_no, run_at - ahead.by AS run_at, due_at - ahead.by AS due_at, ran, failed, stopped,
           died, crashed, because, error, result
      FROM json_to_recordset(:batch::text::json)
        AS told (id uuid, claim_no bigint, run_at timestamptz, due_at timestamptz, ran boolean, failed boolean,
                 stopped boolean, died integer, crashed integer, because text, error text, result text, worker_now timestamptz)
CROSS JOIN LATERAL (SELECT CASE WHEN worker_now > {now} + interval '2 seconds' THEN worker_now - {now} ELSE interval '0' END) AS ahead (by)
)
UPDATE {schema}.jobs
   SET status = CASE WHEN jobs.rerun_at <= {now} THEN 'pending' ELSE 'scheduled' END,
       attempts = 0,
       rank = CASE WHEN jobs.rank = -jobs.priority THEN jobs.rank
                   ELSE jobs.rank + (extract(epoch FROM COALESCE(jobs.rerun_at, new.run_at) - jobs.run_at) * 1000000)::bigint END,
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
       crashes = CASE WHEN NOT new.ran THEN jobs.crashes
                      WHEN new.died = 1 AND new.because IS NULL THEN jobs.crashes + new.crashed
                      ELSE 0 END,
       deaths = CASE WHEN new.died = 1 OR NOT new.ran OR new.because IS NOT NULL THEN jobs.deaths + new.died ELSE 0 END,
       suspect = jobs.suspect AND (new.died = 1 OR NOT new.ran OR new.because IS NOT NULL),
       enabled = jobs.enabled AND new.because IS NULL,
       disabled_because = COALESCE(new.because, jobs.disabled_because),
       verdict = NULL,
       unreadable_since = NULL,
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
                              FOR NO KEY UPDATE                                                 --? wait
                              FOR NO KEY UPDATE SKIP LOCKED                                     --? skip
                          ))
RETURNING jobs.id::text, jobs.status;
