-- Heartbeats, deaths, and giving back the jobs of dead workers.
-- The same statements, in the same order, as in workers.sqlite.sql. How they are written: engine/statements.py.

-- name: mark_dead
-- Mark workers dead, for good, if they are as silent as was seen.
UPDATE {schema}.workers
   SET died_at = {now}
  FROM json_to_recordset(:batch::text::json) AS seen (id text, beat_no bigint)
 WHERE workers.id = seen.id
   AND (seen.beat_no IS NULL OR workers.beat_no = seen.beat_no)
   AND workers.died_at IS NULL
RETURNING workers.id, workers.left_at, workers.info::text;

-- name: suspect
-- A worker died: each job that had begun in it has one more death on record, and one that was the only one has a crash
-- too, if the process died by its own doing. `begun`: a list of 'id:claim number', or NULL: all that the worker held.
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
-- What dead workers held, and whether they went in good order.
SELECT held.id::text, held.claim_no, held.attempts, held.worker_id, held.started_at, held.verdict, dead.left_at IS NOT NULL
  FROM {schema}.workers AS dead
  JOIN {schema}.jobs AS held ON held.worker_id = dead.id
 WHERE dead.died_at IS NOT NULL
   AND held.status = 'running'
 LIMIT :limit::int
   FOR NO KEY UPDATE OF held SKIP LOCKED;

-- name: rescue
-- Give back what dead workers held; the attempt is given back too.
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
-- A worker goes in good order: what it still holds did not kill it.
UPDATE {schema}.workers
   SET left_at = {now}
 WHERE id = :id::text
   AND died_at IS NULL;

-- name: record_verdict
-- What to record of a run that its worker cannot record any more; whoever claims it next does.
UPDATE {schema}.jobs
   SET verdict = :verdict::text
 WHERE id = :id::text::uuid
   AND claim_no = :claim_no::bigint
   AND COALESCE(status, '') = 'running';

-- name: report
-- How far runs have come, each only while its claim holds, and if that is news: at its end a run may tell it once more.
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
-- A worker's sign of life, the first one makes its row; a dead worker stays dead.
INSERT INTO {schema}.workers (id, info, beat_no, started_at, beat_at)
VALUES (:id::text, :info::text, 1, {now}, {now})
ON CONFLICT (id) DO UPDATE
   SET beat_no = workers.beat_no + 1,
       beat_at = {now},
       info = excluded.info
 WHERE workers.died_at IS NULL
RETURNING beat_no, COALESCE(asked_at > COALESCE(stacks_at, started_at), false);

-- name: held
-- What a worker holds, by the database's word.
SELECT id::text, claim_no, cancel_requested
  FROM {schema}.jobs
 WHERE status = 'running'
   AND worker_id = :worker::text;

-- name: ask_stacks
-- Somebody wants to see where the runs of a worker stand; its next beat tells it so.
UPDATE {schema}.workers
   SET asked_at = {now}
 WHERE id = :id::text
   AND died_at IS NULL
RETURNING id;

-- name: tell_stacks
-- Where they stand.
UPDATE {schema}.workers
   SET stacks_at = {now},
       stacks = :text::text
 WHERE id = :id::text;

-- name: stacks
-- What a worker said of its runs, and when it was asked.
SELECT asked_at, stacks_at, stacks
  FROM {schema}.workers
 WHERE id = :id::text;

-- name: prune_workers
-- Forget workers that died before the given age and hold nothing.
DELETE FROM {schema}.workers
 WHERE died_at <= {now} - :age::bigint * interval '1 microsecond'
   AND NOT EXISTS (SELECT 1 FROM {schema}.jobs WHERE status = 'running' AND worker_id = workers.id);
