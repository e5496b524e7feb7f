-- What recurring jobs need. The same names, in the same order, as ../sqlite/schedules.sql; written as statements.sql
-- says.

-- name: recur
-- The end of a recurring job's run: the row waits for its next one, whatever happened. Who asked for a run meanwhile
-- gets it first. The worker counted from `told_at`; if the clock went back during the run, the row counts from now.
WITH new AS MATERIALIZED (
    SELECT told.id, claim_no, run_at - ahead.by AS run_at, due_at - ahead.by AS due_at, ran, failed, stopped,
           died, crashed, because, error, result
      FROM json_to_recordset(:batch::text::json)
        AS told (id uuid, claim_no bigint, run_at timestamptz, due_at timestamptz, ran boolean, failed boolean,
                 stopped boolean, died integer, crashed integer, because text, error text, result text, told_at timestamptz)
CROSS JOIN LATERAL (SELECT CASE WHEN told_at > {now} + interval '2 seconds' THEN told_at - {now} ELSE interval '0' END) AS ahead (by)
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

-- name: find_schedule
-- A recurring job by its task and key, held for this transaction.
SELECT {columns}
  FROM {schema}.jobs
 WHERE type = :type::text
   AND key = :key::text
   AND status IN ({unfinished})
   FOR UPDATE;

-- name: renew_schedule
-- A recurring job as it is asked for now: enabled, with these arguments; its next run stays. `updated_at` stays too: applications
-- ask for their schedules at each start, and a row written later than now is the proof of a step of the clock (clock_steps.py).
UPDATE {schema}.jobs
   SET schedule = :schedule::text,
       queue = :queue::text,
       priority = :priority::bigint,
       rank = CASE WHEN :aging::bigint IS NULL THEN -:priority::bigint
                   ELSE (extract(epoch FROM run_at) * 1000000)::bigint - :priority::bigint * :aging::bigint END,
       entity_type = :entity_type::text,
       entity_id = :entity_id::text,
       timeout = :timeout::double precision,
       enabled = enabled OR :enables::boolean,
       crashes = CASE WHEN :enables::boolean AND NOT enabled THEN 0 ELSE crashes END,
       disabled_because = CASE WHEN NOT :enables::boolean THEN disabled_because END,
       payload = :payload::text::json
 WHERE id = :holder::text::uuid
   AND schedule IS NOT NULL;

-- name: enable_schedule
-- Let a recurring job run, or keep it from doing so; a run that has begun ends as it would.
UPDATE {schema}.jobs
   SET enabled = :enabled::boolean,
       disabled_because = :because::text,
       crashes = CASE WHEN :enabled::boolean THEN 0 ELSE crashes END,
       status = CASE WHEN :enabled::boolean OR status = 'running' THEN status ELSE 'scheduled' END,
       updated_at = greatest(updated_at, {now})
 WHERE id = :id::text::uuid
   AND schedule IS NOT NULL;

-- name: move_schedule
-- Choose the next run of a recurring job; of one that runs, the run after this one.
UPDATE {schema}.jobs
   SET status = CASE WHEN status = 'running' THEN status
                     WHEN COALESCE(:run_at::text::timestamptz, {now} + :delay::bigint * interval '1 microsecond') > {now} THEN 'scheduled'
                     ELSE 'pending' END,
       rank = CASE WHEN status = 'running' OR rank = -priority THEN rank
                   ELSE rank + (extract(epoch FROM COALESCE(:run_at::text::timestamptz, {now} + :delay::bigint * interval '1 microsecond') - run_at) * 1000000)::bigint END,
       run_at = CASE WHEN status = 'running' THEN run_at
                     ELSE COALESCE(:run_at::text::timestamptz, {now} + :delay::bigint * interval '1 microsecond') END,
       due_at = CASE WHEN status = 'running' THEN due_at
                     ELSE COALESCE(:run_at::text::timestamptz, {now} + :delay::bigint * interval '1 microsecond') END,
       rerun_at = CASE WHEN status = 'running' THEN COALESCE(:run_at::text::timestamptz, {now} + :delay::bigint * interval '1 microsecond') END,
       updated_at = {now}
 WHERE id = :id::text::uuid
   AND schedule IS NOT NULL;

-- name: schedules
-- Recurring jobs by task and key, some at a time.
SELECT {columns}
  FROM {schema}.jobs
 WHERE schedule IS NOT NULL
   AND (type, key) > (:type::text, :key::text)
 ORDER BY type, key
 LIMIT :limit::int;

-- name: disabled_schedules
-- Recurring jobs that were not disabled by an operator, and why.
SELECT type, key, disabled_because
  FROM {schema}.jobs
 WHERE disabled_because IS NOT NULL
 ORDER BY type, key
 LIMIT :limit::int;

-- name: recurring_types
-- The tasks that have recurring jobs: a step for each task, however many jobs there are.
WITH RECURSIVE seen (type) AS (
    (SELECT type FROM {schema}.jobs WHERE schedule IS NOT NULL ORDER BY type, key LIMIT 1)
     UNION ALL
    SELECT (SELECT type FROM {schema}.jobs WHERE schedule IS NOT NULL AND type > seen.type ORDER BY type, key LIMIT 1)
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
SELECT look.id::text, look.run_at, look.due_at, look.updated_at, look.schedule, runs.finished_at
  FROM (SELECT id, run_at, due_at, updated_at, schedule, claim_no
          FROM {schema}.jobs
         WHERE status IN ({promote})
           AND enabled
           AND (run_at, id) > (:run_at::text::timestamptz, COALESCE(:id::text::uuid, '00000000-0000-0000-0000-000000000000'))
         ORDER BY run_at, id
         LIMIT :limit::int) AS look
 CROSS JOIN LATERAL (SELECT finished_at
                       FROM {schema}.attempts
                      WHERE attempts.job_id = look.id AND attempts.claim_no = look.claim_no
                      LIMIT 1) AS runs
 WHERE look.updated_at > {now};

-- name: ahead_edge
-- The last job of that look, if there may be more after it.
SELECT run_at, id::text
  FROM {schema}.jobs
 WHERE status IN ({promote})
   AND enabled
   AND (run_at, id) > (:run_at::text::timestamptz, COALESCE(:id::text::uuid, '00000000-0000-0000-0000-000000000000'))
 ORDER BY run_at, id
 LIMIT 1 OFFSET :limit::int - 1;

-- name: pull_in
-- Let a job that waits run sooner, unless something has written it meanwhile.
UPDATE {schema}.jobs
   SET rank = CASE WHEN jobs.rank = -jobs.priority THEN jobs.rank
                   ELSE jobs.rank + (extract(epoch FROM new.run_at - jobs.run_at) * 1000000)::bigint END,
       run_at = new.run_at,
       due_at = new.due_at,
       updated_at = {now}
  FROM json_to_recordset(:batch::text::json) AS new (id uuid, run_at timestamptz, due_at timestamptz, written timestamptz)
 WHERE jobs.id = new.id
   AND jobs.id = ANY(ARRAY(SELECT wanted.id FROM json_to_recordset(:batch::text::json) AS wanted (id uuid)))
   AND COALESCE(jobs.status, '') IN ({promote})
   AND jobs.updated_at = new.written
RETURNING jobs.queue;
