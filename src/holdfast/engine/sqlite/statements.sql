-- The SQL of the SQLite engine. The same names, in the same order, as ../postgres/statements.sql.
-- A statement given a batch runs once for each member, or, where it says :ids, once for all that are alike. Times are
-- microseconds; {now} is the moment of the call. Every write runs after BEGIN IMMEDIATE, so nothing moves between two statements.
-- INDEXED BY, because the application may have run ANALYZE while the tables were small.

-- name: insert
-- Add jobs; one whose id is there, or whose key is live, is left out.
INSERT INTO holdfast_jobs
       (id, type, queue, status, priority, rank, key, entity_type, entity_id,
        schedule, due_at, expires_at,                                           --? special
        max_attempts, timeout, created_at, updated_at, run_at)
VALUES (:id, :type, :queue,
        CASE WHEN COALESCE(:run_at, {now} + :delay) > {now} THEN 'scheduled' ELSE 'pending' END,
        :priority,
        -:priority,                                                             --? plain
        CASE WHEN :aging IS NULL THEN -:priority ELSE COALESCE(:run_at, {now} + :delay) - :priority * :aging END, --? special
        :key, :entity_type, :entity_id,
        :schedule,                                                              --? special
        CASE WHEN :schedule IS NOT NULL THEN COALESCE(:run_at, {now} + :delay) END, --? special
        {now} + :expires,                                                       --? special
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
-- The live job that holds a key.
SELECT id, status
  FROM holdfast_jobs
 WHERE type = :type
   AND key = :key
   AND key IS NOT NULL
   AND status IN ({unfinished});

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

-- name: look_suspect
-- Some of those whose process died under them: whoever takes one runs it alone.
SELECT {claimed}, payload
  FROM holdfast_jobs AS jobs INDEXED BY holdfast_jobs_suspect
 CROSS JOIN holdfast_payloads ON holdfast_payloads.job_id = jobs.id
 WHERE jobs.status = 'pending'
   AND jobs.suspect
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

-- name: lock_keys
-- Nothing to lock: who writes is alone.
SELECT :keys;

-- name: rooms
-- How many run under some keys, and what is allowed. A limit counts by its name or its queue, or by its keys.
SELECT keys.key,
       COALESCE(limits.set_concurrency, limits.concurrency),
       COALESCE(limits.set_rate, limits.rate),
       COALESCE(limits.set_period, limits.period),
       keys.starts,
       keys.in_line,
       {now},
       (SELECT COUNT(*) FROM holdfast_jobs INDEXED BY holdfast_jobs_keyed                            --? keyed
         WHERE status = 'running' AND limit_key IS NOT NULL AND limit_key = keys.key)                --? keyed
       (SELECT COUNT(*) FROM holdfast_jobs INDEXED BY holdfast_jobs_slots                            --? whole
         WHERE status = 'running' AND limit_name IS NOT NULL AND limit_name = keys.key)              --? whole
       + (SELECT COUNT(*) FROM holdfast_jobs INDEXED BY holdfast_jobs_crowd                          --? whole
           WHERE status = 'running' AND limit_queue IS NOT NULL AND limit_queue = keys.key)          --? whole
  FROM holdfast_keys AS keys
 CROSS JOIN holdfast_limits AS limits ON limits.name = keys.name
 WHERE keys.key IN (SELECT value FROM json_each(:keys));

-- name: add_keys
-- Keys that are seen for the first time.
INSERT INTO holdfast_keys (key, name)
VALUES (:key, :name)
ON CONFLICT DO NOTHING;

-- name: spend
-- Remember when jobs of a key started, and when the next may, if some wait for that.
UPDATE holdfast_keys
   SET starts = :starts,
       wake_at = {now} + :wait
 WHERE key = :key;

-- name: park
-- These wait for room under their key.
UPDATE holdfast_jobs
   SET status = 'blocked',
       limit_key = :limit_key,
       updated_at = {now}
 WHERE id IN (SELECT value FROM json_each(:ids))
   AND status IN ({park});

-- name: unpark
-- The best that wait for a key go back in line; where keys take turns, one of them, at its end.
UPDATE holdfast_jobs
   SET status = 'pending',
       run_at = CASE WHEN EXISTS (SELECT 1
                                    FROM holdfast_keys AS keys
                                    JOIN holdfast_limits AS limits ON limits.name = keys.name
                                   WHERE keys.key = :key
                                     AND limits.fair) THEN {now} ELSE run_at END,
       updated_at = {now}
 WHERE id IN (SELECT id
                FROM holdfast_jobs INDEXED BY holdfast_jobs_parked
               WHERE status = 'blocked'
                 AND limit_key IS NOT NULL
                 AND limit_key = :key
               ORDER BY rank, run_at, id
               LIMIT COALESCE((SELECT CASE WHEN limits.fair THEN 1 - keys.in_line ELSE :size END
                                 FROM holdfast_keys AS keys
                                 JOIN holdfast_limits AS limits ON limits.name = keys.name
                                WHERE keys.key = :key), :size))
RETURNING queue, limit_key, EXISTS (SELECT 1
                                      FROM holdfast_keys AS keys
                                      JOIN holdfast_limits AS limits ON limits.name = keys.name
                                     WHERE keys.key = :key
                                       AND limits.fair);

-- name: turn
-- Where keys take turns: which have a job in line, and which have not.
UPDATE holdfast_keys
   SET in_line = :in_line
 WHERE key IN (SELECT value FROM json_each(:keys));

-- name: due_keys
-- Keys for which time has made room.
UPDATE holdfast_keys
   SET wake_at = NULL
 WHERE key IN (SELECT key
                 FROM holdfast_keys INDEXED BY holdfast_keys_wake
                WHERE wake_at IS NOT NULL
                  AND wake_at <= {now}
                ORDER BY wake_at
                LIMIT :limit)
RETURNING key;

-- name: waiting_keys
-- Keys that jobs wait for, some at a time.
WITH RECURSIVE seen (key, number) AS (
    SELECT (SELECT MIN(limit_key) FROM holdfast_jobs INDEXED BY holdfast_jobs_parked
             WHERE status = 'blocked' AND limit_key IS NOT NULL AND limit_key > :after), 1
     UNION ALL
    SELECT (SELECT MIN(limit_key) FROM holdfast_jobs INDEXED BY holdfast_jobs_parked
             WHERE status = 'blocked' AND limit_key IS NOT NULL AND limit_key > seen.key), seen.number + 1
      FROM seen
     WHERE seen.key IS NOT NULL
       AND seen.number < :limit
)
SELECT key
  FROM seen
 WHERE key IS NOT NULL;

-- name: declare_limit
-- A limit as the code has it; what an operator has set stays.
INSERT INTO holdfast_limits (name, concurrency, rate, period, keyed, fair, tasks, updated_at)
VALUES (:name, :concurrency, :rate, :period, :keyed, :fair, :tasks, {now})
ON CONFLICT (name) DO UPDATE
   SET concurrency = excluded.concurrency,
       rate = excluded.rate,
       period = excluded.period,
       keyed = excluded.keyed,
       fair = excluded.fair,
       tasks = excluded.tasks,
       updated_at = excluded.updated_at
 WHERE (holdfast_limits.concurrency, holdfast_limits.rate, holdfast_limits.period, holdfast_limits.keyed, holdfast_limits.fair, holdfast_limits.tasks)
    IS NOT (excluded.concurrency, excluded.rate, excluded.period, excluded.keyed, excluded.fair, excluded.tasks);

-- name: set_limit
-- What an operator wants instead of the code's; NULL: the code's.
UPDATE holdfast_limits
   SET set_concurrency = :concurrency,
       set_rate = :rate,
       set_period = :period,
       updated_at = {now}
 WHERE name = :name
RETURNING name;

-- name: drop_limit
-- A limit that is no more: a queue's, or one that is gone from the code.
DELETE FROM holdfast_limits
 WHERE name = :name
RETURNING name;
DELETE FROM holdfast_keys
 WHERE name = :name;

-- name: wake_keys
-- A limit was changed: all that wait for it look again.
UPDATE holdfast_keys
   SET wake_at = {now}
 WHERE name = :name;

-- name: crowd
-- What runs in a queue counts under its limit from now on.
UPDATE holdfast_jobs INDEXED BY holdfast_jobs_held
   SET limit_queue = :name
 WHERE status = 'running'
   AND worker_id IS NOT NULL
   AND queue = :queue
   AND limit_queue IS NULL;

-- name: limits
-- Every limit, what runs under it, and what is parked for it, counted up to a cap.
SELECT limits.name, limits.concurrency, limits.rate, limits.period, limits.keyed, limits.fair, limits.tasks,
       limits.set_concurrency, limits.set_rate, limits.set_period,
       (SELECT COUNT(*) FROM (SELECT 1 FROM holdfast_jobs INDEXED BY holdfast_jobs_keyed
                               WHERE status = 'running' AND limit_key IS NOT NULL
                                 AND limit_key >= limits.name || '=' AND limit_key < limits.name || '>' LIMIT :cap))
       + (SELECT COUNT(*) FROM (SELECT 1 FROM holdfast_jobs INDEXED BY holdfast_jobs_slots
                                 WHERE status = 'running' AND limit_name IS NOT NULL AND limit_name = limits.name LIMIT :cap))
       + (SELECT COUNT(*) FROM (SELECT 1 FROM holdfast_jobs INDEXED BY holdfast_jobs_crowd
                                 WHERE status = 'running' AND limit_queue IS NOT NULL AND limit_queue = limits.name LIMIT :cap)),
       (SELECT COUNT(*) FROM (SELECT 1 FROM holdfast_jobs INDEXED BY holdfast_jobs_parked
                               WHERE status = 'blocked' AND limit_key IS NOT NULL
                                 AND limit_key >= limits.name || '=' AND limit_key < limits.name || '>' LIMIT :cap))
  FROM holdfast_limits AS limits
 ORDER BY limits.name;

-- name: place
-- How many stand in line in front of a job: of those parked for its key, or pending beside it; up to a cap.
SELECT COUNT(*)
  FROM (SELECT 1
          FROM holdfast_jobs INDEXED BY holdfast_jobs_parked                                     --? parked
         WHERE status = 'blocked' AND limit_key IS NOT NULL AND limit_key = :limit_key           --? parked
          FROM holdfast_jobs INDEXED BY holdfast_jobs_claim                                      --? pending
         WHERE status = 'pending' AND queue = :queue AND type = :type AND suspect = 0            --? pending
           AND (rank, run_at, id) < (:rank, :run_at, :id)
         LIMIT :cap);

-- name: prune_keys
-- Forget keys that nobody uses: no job runs or waits under them, and their last starts are over.
DELETE FROM holdfast_keys
 WHERE key IN (SELECT key
                 FROM (SELECT keys.key, keys.name, keys.starts, keys.wake_at
                         FROM holdfast_keys AS keys
                        WHERE keys.key > :after
                        ORDER BY keys.key
                        LIMIT :limit) AS some
                WHERE some.key <> some.name
                  AND some.starts IS NULL
                  AND some.wake_at IS NULL
                  AND NOT EXISTS (SELECT 1 FROM holdfast_jobs INDEXED BY holdfast_jobs_keyed
                                   WHERE status = 'running' AND limit_key IS NOT NULL AND limit_key = some.key)
                  AND NOT EXISTS (SELECT 1 FROM holdfast_jobs INDEXED BY holdfast_jobs_parked
                                   WHERE status = 'blocked' AND limit_key IS NOT NULL AND limit_key = some.key));

-- name: keys_edge
-- How far that look went: the last key, and how many there were.
SELECT MAX(key), COUNT(*)
  FROM (SELECT key
          FROM holdfast_keys
         WHERE key > :after
         ORDER BY key
         LIMIT :limit);

-- name: suspects
-- The queues and types of jobs that wait to be run alone: a bounded look.
SELECT DISTINCT queue, type
  FROM (SELECT queue, type
          FROM holdfast_jobs INDEXED BY holdfast_jobs_suspect
         WHERE status = 'pending'
           AND suspect
         ORDER BY rank, run_at, id
         LIMIT 1000)
 LIMIT 100;

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
       finish_no = claim_no,
       updated_at = {now}
 WHERE id IN (SELECT value FROM json_each(:ids))
   AND claim_no = :claim_no
   AND COALESCE(status, '') = 'running'
   AND rerun_at IS NULL
   AND suspect = 0
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
       crashes = crashes + :crashed,
       suspect = 0,
       verdict = NULL,
       finish_no = claim_no,
       rerun_at = NULL,
       updated_at = {now}
 WHERE id = :id
   AND claim_no = :claim_no
   AND status = 'running';

-- name: recur
-- The end of a recurring job's run: the row waits for its next one, whatever happened. Who asked for a run meanwhile
-- gets it first.
UPDATE holdfast_jobs
   SET status = CASE WHEN rerun_at <= {now} THEN 'pending' ELSE 'scheduled' END,
       attempts = 0,
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
RETURNING id, left_at;

-- name: suspect
-- One of the jobs that a worker held may have killed it: each runs alone next time, and one that was alone already has
-- a crash on its record.
UPDATE holdfast_jobs INDEXED BY holdfast_jobs_held
   SET suspect = 1,
       crashes = crashes + (1 = (SELECT COUNT(*)
                                   FROM (SELECT 1
                                           FROM holdfast_jobs AS beside INDEXED BY holdfast_jobs_held
                                          WHERE beside.worker_id = :id
                                            AND beside.status = 'running'
                                          LIMIT 2)))
 WHERE worker_id = :id
   AND status = 'running';

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
       rerun_at = NULL,
       updated_at = {now}
 WHERE id IN (SELECT held.id
                FROM holdfast_workers AS dead
          CROSS JOIN holdfast_jobs AS held INDEXED BY holdfast_jobs_held
               WHERE dead.died_at IS NOT NULL
                 AND held.worker_id = dead.id
                 AND held.status = 'running'
               ORDER BY held.id
               LIMIT :limit)
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
-- How far runs have come, each only while its claim holds.
UPDATE holdfast_jobs
   SET progress = :progress,
       message = :message,
       updated_at = {now}
 WHERE id = :id
   AND claim_no = :claim_no
   AND status = 'running';

-- name: prune
-- Delete finished jobs whose time is over, the oldest first: a bounded look at one status.
DELETE FROM holdfast_jobs
 WHERE id IN (SELECT id
                FROM (SELECT id, keep_until
                        FROM holdfast_jobs INDEXED BY holdfast_jobs_listed
                       WHERE status = :status
                         AND status <> 'running'
                         AND id > :after
                         AND id < :before
                       ORDER BY id
                       LIMIT :scan)
               WHERE keep_until <= {now}
               LIMIT :limit)
RETURNING id;

-- name: prune_edge
-- How far that look went: the last id, and how many rows it saw.
SELECT MAX(id), COUNT(*)
  FROM (SELECT id
          FROM holdfast_jobs INDEXED BY holdfast_jobs_listed
         WHERE status = :status
           AND status <> 'running'
           AND id > :after
           AND id < :before
         ORDER BY id
         LIMIT :scan);

-- name: prune_workers
-- Forget workers that died before the given age and hold nothing.
DELETE FROM holdfast_workers
 WHERE died_at <= {now} - :age
   AND NOT EXISTS (SELECT 1 FROM holdfast_jobs WHERE status = 'running' AND worker_id = holdfast_workers.id);

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
   AND (schedule IS NULL OR status = 'running')
RETURNING id;

-- name: retry
-- Run again, from the beginning, unless another live job holds the key by now.
UPDATE holdfast_jobs
   SET status = 'pending',
       attempts = 0,
       crashes = 0,
       suspect = 0,
       verdict = NULL,
       run_at = {now},
       due_at = CASE WHEN schedule IS NOT NULL THEN {now} END,
       worker_id = NULL,
       started_at = NULL,
       completed_at = NULL,
       keep_until = NULL,
       error = NULL,
       progress = NULL,
       message = NULL,
       cancel_requested = 0,
       updated_at = {now}
 WHERE id = :job_id
   AND status IN ({retry})
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
RETURNING id, limit_key, status, queue;

-- name: beat
-- A worker's sign of life, the first one makes its row; a dead worker stays dead.
INSERT INTO holdfast_workers (id, info, beat_no, started_at, beat_at)
VALUES (:id, :info, 1, {now}, {now})
ON CONFLICT (id) DO UPDATE
   SET beat_no = beat_no + 1,
       beat_at = {now},
       info = excluded.info
 WHERE died_at IS NULL
RETURNING beat_no;

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
   SET paused_at = CASE WHEN :paused THEN COALESCE(paused_at, {now}) END,
       resume_at = excluded.resume_at;

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
       message = :message,
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

-- name: search
-- A page of jobs, the newest first: a bounded walk of one index, filtered. Bodies are not read.
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
         LIMIT :scan)
 WHERE TRUE
   AND status = :status                                         --? status
   AND queue = :queue                                           --? queue
   AND type = :type                                             --? type
   AND type >= :prefix AND type < :prefix_end                   --? prefix
   AND key = :key                                               --? key
   AND worker_id = :worker_id                                   --? worker
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

-- name: count
-- How many jobs have a status, counted up to a cap.
SELECT COUNT(*)
  FROM (SELECT 1
          FROM holdfast_jobs                                    --? newest
          FROM holdfast_jobs INDEXED BY holdfast_jobs_listed    --? listed
          FROM holdfast_jobs INDEXED BY holdfast_jobs_held      --? running
         WHERE TRUE
           AND status = :status AND status <> 'running'         --? listed
           AND status = 'running'                               --? running
         LIMIT :cap);

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
