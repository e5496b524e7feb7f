-- Heartbeats, dead workers, and the return of their jobs to the queues.
-- The same names in the same order as in rescue.sqlite.sql. How they are written: engine/script.py.

-- name: mark_dead
-- Mark workers dead, for good, if they have not sent a heartbeat since the given one.
UPDATE {schema}.workers
   SET died_at = {now}
  FROM json_to_recordset(:batch::text::json) AS seen (id text, beat_no bigint)
 WHERE workers.id = seen.id
   AND (seen.beat_no IS NULL OR workers.beat_no = seen.beat_no)
   AND workers.died_at IS NULL
RETURNING workers.id, workers.left_at, workers.info::text;

-- name: suspect
-- A worker has died: add a death to each job that had begun in it, and a crash to a job that was the only one if the
-- process died by its own doing. `begun`: a list of 'id:claim number', or NULL: all jobs that the worker held.
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

-- name: held_by_dead
-- The jobs that dead workers held, and whether the worker deregistered.
SELECT held.id::text, held.claim_no, held.attempts, held.worker_id, held.started_at, held.verdict, dead.left_at IS NOT NULL
  FROM {schema}.workers AS dead
  JOIN {schema}.jobs AS held ON held.worker_id = dead.id
 WHERE dead.died_at IS NOT NULL
   AND held.status = 'running'
 LIMIT :limit::int
   FOR NO KEY UPDATE OF held SKIP LOCKED;

-- name: rescue
-- Return the jobs of dead workers to their queues. Their attempt does not count.
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
-- Deregister a worker that shuts down: what it still holds is not suspected of its death.
UPDATE {schema}.workers
   SET left_at = {now}
 WHERE id = :id::text
   AND died_at IS NULL;

-- name: record_verdict
-- Store the end of a run that its worker cannot record. The next worker that claims the job records it.
UPDATE {schema}.jobs
   SET verdict = :verdict::text
 WHERE id = :id::text::uuid
   AND claim_no = :claim_no::bigint
   AND COALESCE(status, '') = 'running';

-- name: report
-- Write the progress of runs, each only while its claim holds and only if it is new: at its end a run may report it
-- again.
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

-- name: beat
-- Write a worker's heartbeat; the first one adds its row. A dead worker stays dead.
INSERT INTO {schema}.workers (id, info, beat_no, started_at, beat_at)
VALUES (:id::text, :info::text, 1, {now}, {now})
ON CONFLICT (id) DO UPDATE
   SET beat_no = workers.beat_no + 1,
       beat_at = {now},
       info = excluded.info
 WHERE workers.died_at IS NULL
RETURNING beat_no, COALESCE(asked_at > COALESCE(stacks_at, started_at), false);

-- name: held
-- The claims of a worker.
SELECT id::text, claim_no, cancel_requested
  FROM {schema}.jobs
 WHERE status = 'running'
   AND worker_id = :worker::text;

-- name: ask_stacks
-- Ask a worker for the stacks of its runs; its next heartbeat returns the request.
UPDATE {schema}.workers
   SET asked_at = {now}
 WHERE id = :id::text
   AND died_at IS NULL
RETURNING id;

-- name: tell_stacks
-- Store the stacks of a worker's runs.
UPDATE {schema}.workers
   SET stacks_at = {now},
       stacks = :text::text
 WHERE id = :id::text;

-- name: stacks
-- The stacks of a worker's runs, and when they were asked for and stored.
SELECT asked_at, stacks_at, stacks
  FROM {schema}.workers
 WHERE id = :id::text;

-- name: prune_workers
-- Delete workers that died before the given age and hold nothing.
DELETE FROM {schema}.workers
 WHERE died_at <= {now} - :age::bigint * interval '1 microsecond'
   AND NOT EXISTS (SELECT 1 FROM {schema}.jobs WHERE status = 'running' AND worker_id = workers.id);
