-- The SQL of the SQLite engine. The same names, in the same order, as ../postgres/statements.sql.
-- A statement given a batch runs once for each member, or, where it says :ids, once for all that are alike. Times are
-- microseconds; {now} is the moment of the call. Every write runs after BEGIN IMMEDIATE, so nothing moves between two statements.
-- INDEXED BY, because the application may have run ANALYZE while the tables were small.

-- name: insert
-- Add jobs; one whose id or idempotency key is there, or whose key is live, is left out.
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
-- Hint at queues. Nothing to send here: the kernel tells of every commit (wakeups.py).
SELECT :queues;

-- name: present
-- Which of these ids exist.
SELECT id
  FROM holdfast_jobs
 WHERE id IN (SELECT value FROM json_each(:ids));

-- name: holder
-- The live job that holds a key, and whether it recurs.
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
-- Give the live holder of a key the newer request: a waiting one takes it over, a running one runs again.
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

-- name: claim
-- Nothing to do: here `look` and `take`, in one transaction, are quicker than an UPDATE that returns rows.
SELECT 1;

-- name: claim_types
-- Nothing to do either.
SELECT 1;

-- name: look
-- The best pending jobs of some types in one queue, in the order of running.
SELECT {claimed}, payload
  FROM holdfast_jobs AS jobs INDEXED BY holdfast_jobs_claim                                     --? one
  FROM (SELECT head.id                                                                          --? several
          FROM json_each(:types) AS wanted                                                      --? several
    CROSS JOIN holdfast_jobs AS head                                                            --? several
         WHERE head.id IN (SELECT id                                                            --? several
                             FROM holdfast_jobs INDEXED BY holdfast_jobs_claim                  --? several
                            WHERE status = 'pending'                                            --? several
                              AND queue = :queue                                                --? several
                              AND type = json_extract(wanted.value, '$.type')                   --? several
                              AND suspect = 0                                                   --? several
                            ORDER BY rank, run_at, id                                           --? several
                            LIMIT CASE WHEN {may_claim} THEN :limit ELSE 0 END)                 --? several
         ORDER BY head.rank, head.run_at, head.id                                               --? several
         LIMIT :limit) AS best                                                                  --? several
 CROSS JOIN holdfast_jobs AS jobs ON jobs.id = best.id                                          --? several
 CROSS JOIN holdfast_payloads ON holdfast_payloads.job_id = jobs.id
 WHERE jobs.status = 'pending'
   AND jobs.queue = :queue                                                                      --? one
   AND jobs.type = :type                                                                        --? one
   AND jobs.suspect = 0                                                                         --? one
 ORDER BY jobs.rank, jobs.run_at, jobs.id
 LIMIT CASE WHEN {may_claim}
             AND NOT EXISTS (SELECT 1 FROM holdfast_limits WHERE name = 'queue:' || :queue)     --? unlimited
            THEN :limit ELSE 0 END;

-- name: look_suspects
-- Some of the jobs whose process died under them; of one level (decision 0021), or of any.
SELECT {claimed}, deaths, payload
  FROM holdfast_jobs AS jobs INDEXED BY holdfast_jobs_suspect
 CROSS JOIN holdfast_payloads ON holdfast_payloads.job_id = jobs.id
 WHERE jobs.status = 'pending'
   AND jobs.suspect
   AND MIN(MAX(jobs.deaths, 1), 3) = COALESCE(:level, MIN(MAX(jobs.deaths, 1), 3))
   AND jobs.type IN (SELECT value FROM json_each(:types))
   AND jobs.queue IN (SELECT value FROM json_each(:queues))
   AND jobs.queue NOT IN (SELECT name FROM holdfast_queues WHERE paused_at IS NOT NULL AND (resume_at IS NULL OR resume_at > {now}))
 ORDER BY jobs.rank, jobs.run_at, jobs.id
 LIMIT CASE WHEN EXISTS (SELECT 1 FROM holdfast_workers WHERE id = :worker AND died_at IS NULL)
            THEN :limit ELSE 0 END;

-- name: take
-- Make those jobs running.
UPDATE holdfast_jobs
   SET status = 'running',
       worker_id = :worker,
       claim_no = claim_no + 1,
       attempts = attempts + 1,
       started_at = {now},
       updated_at = {now},
       progress = NULL,
       message = NULL,
       limit_name = NULL,
       limit_key = NULL,
       limit_queue = NULL
 WHERE id IN (SELECT value FROM json_each(:ids));

-- name: take_limited
-- The same for jobs that count under limits.
UPDATE holdfast_jobs
   SET status = 'running',
       worker_id = :worker,
       claim_no = claim_no + 1,
       attempts = attempts + 1,
       started_at = {now},
       updated_at = {now},
       progress = NULL,
       message = NULL,
       limit_name = :limit_name,
       limit_key = :limit_key,
       limit_queue = :limit_queue
 WHERE id IN (SELECT value FROM json_each(:ids));

-- name: suspects
-- How many jobs wait whose process died under them, by queue, type and level: a bounded look. Paused queues are left out.
SELECT queue, type, level, COUNT(*)
  FROM (SELECT queue, type, MIN(MAX(deaths, 1), 3) AS level
          FROM holdfast_jobs INDEXED BY holdfast_jobs_suspect
         WHERE status = 'pending'
           AND suspect
         ORDER BY rank, run_at, id
         LIMIT 1000)
 WHERE queue NOT IN (SELECT name FROM holdfast_queues WHERE paused_at IS NOT NULL AND (resume_at IS NULL OR resume_at > {now}))
 GROUP BY queue, type, level
 LIMIT 300;

-- name: complete
-- The common end, and nothing that an index of waiting or running jobs would have to know: all that have the same claim
-- number and are kept as long, in one statement. What it passes over (a lost claim, a job that is to run again or has a
-- verdict on it) is left to `finish`. The status is compared through COALESCE so that the planner goes by primary key,
-- and never by the index of running rows.
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
-- Write how runs ended, each only while its claim holds. The row may know better than the run did:
-- a newer request makes it run again, a request to stop wins over being tried again.
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
-- What became of finishes that changed nothing: applied before, held by a transaction, or lost.
SELECT id, finish_no, claim_no, status
  FROM holdfast_jobs
 WHERE id IN (SELECT value FROM json_each(:ids));

-- name: record_attempts
-- Keep a failed run with its job; the newest 50 of a job stay.
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
-- Microseconds until the next job is due, or a key has room by time; not positive: now.
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

-- name: bury
-- Mark workers dead, for good, if they are as silent as was seen.
UPDATE holdfast_workers
   SET died_at = {now}
 WHERE id = :id
   AND (:beat_no IS NULL OR beat_no = :beat_no)
   AND died_at IS NULL
RETURNING id, left_at, info;

-- name: suspect
-- A worker died: each job that had begun in it has one more death on record, and one that was the only one has a crash
-- too, if the process died by its own doing. `begun`: a list of 'id:claim number', or NULL: all that the worker held.
UPDATE holdfast_jobs INDEXED BY holdfast_jobs_held
   SET suspect = 1,
       deaths = deaths + 1,
       crashes = crashes + :alone,
       error = CASE WHEN :alone THEN :crash ELSE error END
 WHERE worker_id = :id
   AND status = 'running'
   AND (:begun IS NULL OR id || ':' || claim_no IN (SELECT value FROM json_each(:begun)));

-- name: fallen
-- What dead workers held, and whether they went in good order.
SELECT held.id, held.claim_no, held.attempts, held.worker_id, held.started_at, held.verdict, dead.left_at IS NOT NULL
  FROM holdfast_workers AS dead
 CROSS JOIN holdfast_jobs AS held INDEXED BY holdfast_jobs_held
 WHERE dead.died_at IS NOT NULL
   AND held.worker_id = dead.id
   AND held.status = 'running'
 ORDER BY held.id
 LIMIT :limit;

-- name: rescue
-- Give back what dead workers held; the attempt is given back too.
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
-- A worker goes in good order: what it still holds did not kill it.
UPDATE holdfast_workers
   SET left_at = {now}
 WHERE id = :id
   AND died_at IS NULL;

-- name: sentence
-- What to record of a run that its worker cannot record any more; whoever claims it next does.
UPDATE holdfast_jobs
   SET verdict = :verdict
 WHERE id = :id
   AND claim_no = :claim_no
   AND status = 'running';

-- name: report
-- How far runs have come, each only while its claim holds, and if that is news: at its end a run may tell it once more.
UPDATE holdfast_jobs
   SET progress = :progress,
       message = :message,
       updated_at = {now}
 WHERE id = :id
   AND claim_no = :claim_no
   AND status = 'running'
   AND (progress IS NOT :progress OR message IS NOT :message);

-- name: cancel
-- Cancel what waits; ask what runs to stop.
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
-- Run again, from the beginning, unless another live job holds the key by now.
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
-- Remove jobs, whatever they are doing; a run whose row is gone ends quietly.
DELETE FROM holdfast_jobs
 WHERE id = :job_id
   AND status IN (SELECT value FROM json_each(:statuses))                       --? only
RETURNING id, limit_key, status, queue;

-- name: edit
-- Give a job that waits another priority, time or queue. Parked for a limit, it waits on if it is due; blocked by another
-- job, it waits on in any case. What has aged keeps its age.
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

-- name: beat
-- A worker's sign of life, the first one makes its row; a dead worker stays dead.
INSERT INTO holdfast_workers (id, info, beat_no, started_at, beat_at)
VALUES (:id, :info, 1, {now}, {now})
ON CONFLICT (id) DO UPDATE
   SET beat_no = beat_no + 1,
       beat_at = {now},
       info = excluded.info
 WHERE died_at IS NULL
RETURNING beat_no, COALESCE(asked_at > COALESCE(stacks_at, started_at), 0);

-- name: held
-- What a worker holds, by the database's word.
SELECT id, claim_no, cancel_requested
  FROM holdfast_jobs INDEXED BY holdfast_jobs_held
 WHERE status = 'running'
   AND worker_id = :worker;

-- name: pause
-- Pause a queue or let it go on.
INSERT INTO holdfast_queues (name, paused_at, resume_at)
VALUES (:name, CASE WHEN :paused THEN {now} END, COALESCE(:resume_at, {now} + :resume_in))
ON CONFLICT (name) DO UPDATE
   SET paused_at = CASE WHEN NOT :paused THEN NULL WHEN resume_at <= {now} THEN {now} ELSE COALESCE(paused_at, {now}) END,
       resume_at = excluded.resume_at;

-- name: get
-- Whole jobs by id.
SELECT {columns}, payload, CASE WHEN status = 'completed' OR schedule IS NOT NULL THEN result END
  FROM holdfast_jobs
  JOIN holdfast_payloads ON holdfast_payloads.job_id = id
  LEFT JOIN holdfast_results ON holdfast_results.job_id = id
 WHERE id IN (SELECT value FROM json_each(:ids));

-- name: attempts
-- The failed runs of a job, the newest first.
SELECT job_id, claim_no, attempt, worker_id, started_at, finished_at, status, error, trace
  FROM holdfast_attempts
 WHERE job_id = :id
 ORDER BY claim_no DESC;

-- name: last_runs
-- The newest failed run of each of these jobs: the end of its traceback, and when it was.
SELECT runs.job_id, substr(runs.trace, -8000), runs.finished_at
  FROM json_each(:ids) AS told
 CROSS JOIN holdfast_attempts AS runs ON runs.job_id = told.value
 WHERE runs.claim_no = (SELECT MAX(claim_no) FROM holdfast_attempts WHERE job_id = told.value);

-- name: search
-- A page of jobs, the newest first: a bounded walk of one index, filtered. Bodies are not read, unless they are asked for:
-- two paths give a list as JSON text, in which numbers are as they were written.
SELECT {columns}
  FROM (SELECT *
          FROM holdfast_jobs                                    --? newest
          FROM holdfast_jobs INDEXED BY holdfast_jobs_listed    --? listed
          FROM holdfast_jobs INDEXED BY holdfast_jobs_held      --? running
          FROM holdfast_jobs INDEXED BY holdfast_jobs_entity    --? entity
         WHERE id < :before
           AND id >= :since
           AND status = :status AND status <> 'running'         --? listed
           AND status = 'running' AND worker_id IS NOT NULL     --? running
           AND entity_type = :entity_type                       --? entity
           AND entity_id = :entity_id AND entity_type IS NOT NULL --? entity
         ORDER BY id DESC
         LIMIT :scan) AS look
 WHERE TRUE
   AND status = :status                                         --? status
   AND queue = :queue                                           --? queue
   AND type = :type                                             --? type
   AND type >= :prefix AND type < :prefix_end                   --? prefix
   AND key = :key                                               --? key
   AND worker_id = :worker_id                                   --? worker
   AND priority >= :lowest                                      --? lowest
   AND priority <= :highest                                     --? highest
   AND NOT EXISTS (SELECT 1 FROM json_each(:error) AS word      --? error
                    WHERE COALESCE(instr(lower(look.error), word.value), 0) = 0) --? error
   AND NOT EXISTS (SELECT 1 FROM json_each(:text) AS word       --? text
                    WHERE instr(lower(look.type), word.value) = 0                        --? text
                      AND COALESCE(instr(lower(look.key), word.value), 0) = 0            --? text
                      AND COALESCE(instr(lower(look.error), word.value), 0) = 0          --? text
                      AND COALESCE(instr(lower(look.message), word.value), 0) = 0)       --? text
   AND NOT EXISTS (SELECT 1 FROM json_each(:payload) AS wanted                           --? payload
                    WHERE NOT EXISTS (SELECT 1                                           --? payload
                                        FROM json_each(wanted.value, '$.places') AS place --? payload
                                        JOIN json_each(wanted.value, '$.texts') AS given --? payload
                                       CROSS JOIN holdfast_payloads AS body              --? payload
                                       WHERE body.job_id = look.id                       --? payload
                                         AND CASE WHEN json_valid(body.payload) AND json_type(body.payload, place.value) IS NOT NULL --? payload
                                                  THEN json_extract(body.payload, place.value, place.value) END --? payload
                                             = '[' || given.value || ',' || given.value || ']')) --? payload
 ORDER BY id DESC
 LIMIT :limit;

-- name: search_edge
-- How far that walk went: the last id, and how many rows it saw.
SELECT MIN(id), COUNT(*)
  FROM (SELECT id
          FROM holdfast_jobs                                    --? newest
          FROM holdfast_jobs INDEXED BY holdfast_jobs_listed    --? listed
          FROM holdfast_jobs INDEXED BY holdfast_jobs_held      --? running
          FROM holdfast_jobs INDEXED BY holdfast_jobs_entity    --? entity
         WHERE id < :before
           AND id >= :since
           AND status = :status AND status <> 'running'         --? listed
           AND status = 'running' AND worker_id IS NOT NULL     --? running
           AND entity_type = :entity_type                       --? entity
           AND entity_id = :entity_id AND entity_type IS NOT NULL --? entity
         ORDER BY id DESC
         LIMIT :scan);

-- name: counts
-- How many jobs have each of some statuses, counted up to a cap, all at one moment: counted one after the other, a job
-- that moves meanwhile would be in none.
SELECT wanted.value,
       CASE wanted.value
       WHEN 'running' THEN (SELECT COUNT(*)
                              FROM (SELECT 1
                                      FROM holdfast_jobs INDEXED BY holdfast_jobs_held
                                     WHERE status = 'running'
                                     LIMIT :cap))
       ELSE (SELECT COUNT(*)
               FROM (SELECT 1
                       FROM holdfast_jobs INDEXED BY holdfast_jobs_listed
                      WHERE status = wanted.value
                        AND status <> 'running'
                      LIMIT :cap))
       END
  FROM json_each(:statuses) AS wanted;

-- name: workers
-- Every worker that is remembered.
SELECT id, info, beat_no, started_at, beat_at, left_at, died_at
  FROM holdfast_workers
 ORDER BY id;

-- name: queues
-- Queues that hold pending jobs or were ever paused; depth is counted up to a cap.
WITH RECURSIVE seen (name) AS (
    SELECT MIN(queue) FROM holdfast_jobs INDEXED BY holdfast_jobs_claim WHERE status = 'pending'
     UNION ALL
    SELECT (SELECT MIN(queue) FROM holdfast_jobs INDEXED BY holdfast_jobs_claim WHERE status = 'pending' AND queue > seen.name)
      FROM seen
     WHERE seen.name IS NOT NULL
)
SELECT names.name,
       CASE WHEN kept.resume_at <= {now} THEN NULL ELSE kept.paused_at END,
       CASE WHEN kept.resume_at > {now} THEN kept.resume_at END,
       (SELECT COUNT(*) FROM (SELECT 1 FROM holdfast_jobs INDEXED BY holdfast_jobs_claim WHERE status = 'pending' AND queue = names.name LIMIT :cap))
  FROM (SELECT name FROM seen WHERE name IS NOT NULL UNION SELECT name FROM holdfast_queues) AS names
  LEFT JOIN holdfast_queues AS kept ON kept.name = names.name
 ORDER BY names.name;
