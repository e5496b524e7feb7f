-- Heartbeats, dead workers, and the return of their jobs to the queues.
-- The same names in the same order as in rescue.postgres.sql. How they are written: engine/script.py.

-- name: mark_dead
-- Mark workers dead, for good, if they have not sent a heartbeat since the given one.
UPDATE holdfast_workers
   SET died_at = {now}
 WHERE id = :id
   AND (:beat_no IS NULL OR beat_no = :beat_no)
   AND died_at IS NULL
RETURNING id, left_at, info;

-- name: suspect
-- A worker has died: add a death to each job that had begun in it, and a crash to a job that was the only one if the
-- process died by its own doing. `begun`: a list of 'id:claim number', or NULL: all jobs that the worker held.
UPDATE holdfast_jobs INDEXED BY holdfast_jobs_held
   SET suspect = 1,
       deaths = deaths + 1,
       crashes = crashes + :alone,
       error = CASE WHEN :alone THEN :crash ELSE error END
 WHERE worker_id = :id
   AND status = 'running'
   AND (:begun IS NULL OR id || ':' || claim_no IN (SELECT value FROM json_each(:begun)));

-- name: held_by_dead
-- The jobs that dead workers held, and whether the worker deregistered.
SELECT held.id, held.claim_no, held.attempts, held.worker_id, held.started_at, held.verdict, dead.left_at IS NOT NULL
  FROM holdfast_workers AS dead
 CROSS JOIN holdfast_jobs AS held INDEXED BY holdfast_jobs_held
 WHERE dead.died_at IS NOT NULL
   AND held.worker_id = dead.id
   AND held.status = 'running'
 ORDER BY held.id
 LIMIT :limit;

-- name: rescue
-- Return the jobs of dead workers to their queues. Their attempt does not count.
UPDATE holdfast_jobs
   SET status = CASE WHEN rerun_at > {now} THEN 'scheduled'
                     WHEN rerun_at IS NULL AND cancel_requested AND schedule IS NULL THEN 'cancelled'
                     ELSE 'pending' END,
       attempts = CASE WHEN rerun_at IS NOT NULL THEN 0 ELSE attempts - 1 END,
       run_at = COALESCE(rerun_at, run_at),
       worker_id = NULL,
       started_at = NULL,
       completed_at = CASE WHEN rerun_at IS NULL AND cancel_requested AND schedule IS NULL THEN {now} END,
       keep_until = CASE WHEN rerun_at IS NULL AND cancel_requested AND schedule IS NULL THEN {now} + :keep END,
       cancel_requested = CASE WHEN rerun_at IS NULL AND schedule IS NULL THEN cancel_requested ELSE 0 END,
       verdict = CASE WHEN rerun_at IS NULL THEN verdict END,
       unreadable_since = NULL,
       rerun_at = NULL,
       updated_at = {now}
 WHERE id IN (SELECT value FROM json_each(:ids))
RETURNING {columns};

-- name: leave
-- Deregister a worker that shuts down: what it still holds is not suspected of its death.
UPDATE holdfast_workers
   SET left_at = {now}
 WHERE id = :id
   AND died_at IS NULL;

-- name: record_verdict
-- Store the end of a run that its worker cannot record. The next worker that claims the job records it.
UPDATE holdfast_jobs
   SET verdict = :verdict
 WHERE id = :id
   AND claim_no = :claim_no
   AND status = 'running';

-- name: report
-- Write the progress of runs, each only while its claim holds and only if it is new: at its end a run may report it
-- again.
UPDATE holdfast_jobs
   SET progress = :progress,
       message = :message,
       updated_at = {now}
 WHERE id = :id
   AND claim_no = :claim_no
   AND status = 'running'
   AND (progress IS NOT :progress OR message IS NOT :message);

-- name: beat
-- Write a worker's heartbeat; the first one adds its row. A dead worker stays dead.
INSERT INTO holdfast_workers (id, info, beat_no, started_at, beat_at)
VALUES (:id, :info, 1, {now}, {now})
ON CONFLICT (id) DO UPDATE
   SET beat_no = beat_no + 1,
       beat_at = {now},
       info = excluded.info
 WHERE died_at IS NULL
RETURNING beat_no, COALESCE(asked_at > COALESCE(stacks_at, started_at), 0);

-- name: held
-- The claims of a worker.
SELECT id, claim_no, cancel_requested
  FROM holdfast_jobs INDEXED BY holdfast_jobs_held
 WHERE status = 'running'
   AND worker_id = :worker;

-- name: ask_stacks
-- Ask a worker for the stacks of its runs; its next heartbeat returns the request.
UPDATE holdfast_workers
   SET asked_at = {now}
 WHERE id = :id
   AND died_at IS NULL
RETURNING id;

-- name: tell_stacks
-- Store the stacks of a worker's runs.
UPDATE holdfast_workers
   SET stacks_at = {now},
       stacks = :text
 WHERE id = :id;

-- name: stacks
-- The stacks of a worker's runs, and when they were asked for and stored.
SELECT asked_at, stacks_at, stacks
  FROM holdfast_workers
 WHERE id = :id;

-- name: prune_workers
-- Delete workers that died before the given age and hold nothing.
DELETE FROM holdfast_workers
 WHERE died_at <= {now} - :age
   AND NOT EXISTS (SELECT 1 FROM holdfast_jobs WHERE status = 'running' AND worker_id = holdfast_workers.id);
