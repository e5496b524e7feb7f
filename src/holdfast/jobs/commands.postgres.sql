-- Insert, promote, cancel, retry, delete and edit jobs, and pause queues.
-- The same names in the same order as in commands.sqlite.sql; only SQLite has `insert_payloads`. How they are written: engine/script.py.

-- name: insert
-- Add jobs. A job is left out if its id or idempotency key exists, or if an unfinished job has its key. A single job
-- comes as plain parameters, which is a fifth faster. The same statement can send a hint for one queue.
WITH made AS (                                                                                          --? hint
INSERT INTO {schema}.jobs
       (id, type, queue, status, priority, rank, key, entity_type, entity_id,
        schedule, due_at, expires_at, workflow_id, node, idempotency_key,                               --? special
        max_attempts, timeout, created_at, updated_at, run_at, payload)
SELECT id, type, queue,
       CASE WHEN waits THEN 'blocked' ELSE                                                              --? special
       CASE WHEN COALESCE(run_at, {now} + delay * interval '1 microsecond') > {now} THEN 'scheduled' ELSE 'pending' END
       END                                                                                              --? special
       , priority,
       -priority,                                                                                       --? plain
       CASE WHEN aging IS NULL THEN -priority                                                           --? special
            ELSE (extract(epoch FROM COALESCE(run_at, {now} + delay * interval '1 microsecond')) * 1000000)::bigint --? special
                 - priority * aging END,                                                                --? special
       key, entity_type, entity_id,
       schedule,                                                                                        --? special
       CASE WHEN schedule IS NOT NULL THEN COALESCE(run_at, {now} + delay * interval '1 microsecond') END, --? special
       {now} + expires * interval '1 microsecond', workflow_id, node, idempotency_key,                  --? special
       max_attempts, timeout, {now}, {now}, COALESCE(run_at, {now} + delay * interval '1 microsecond'), payload::json
  FROM json_to_recordset(:batch::text::json)                                                            --? many
    AS new (id uuid, type text, queue text, priority bigint, key text, entity_type text, entity_id text, --? many
            schedule text, aging bigint, expires bigint, workflow_id uuid, node text, waits boolean,    --? many
            idempotency_key text,                                                                       --? many
            max_attempts integer, timeout double precision, run_at timestamptz, delay bigint, payload text) --? many
  FROM (VALUES (:id::text::uuid, :type::text, :queue::text, :priority::bigint, :key::text,              --? one
                :entity_type::text, :entity_id::text, :schedule::text, :aging::bigint, :expires::bigint, --? one
                :workflow_id::text::uuid, :node::text, :waits::boolean, :idempotency_key::text,         --? one
                :max_attempts::integer, :timeout::double precision, :run_at::text::timestamptz,         --? one
                :delay::bigint, :payload::text))                                                        --? one
    AS new (id, type, queue, priority, key, entity_type, entity_id, schedule, aging, expires,           --? one
            workflow_id, node, waits, idempotency_key,                                                  --? one
            max_attempts, timeout, run_at, delay, payload)                                              --? one
ON CONFLICT DO NOTHING
RETURNING id::text, status, created_at::text, run_at::text
)                                                                                                       --? hint
SELECT made.*, pg_notify('{schema}_wake', :hint::text)                                                  --? hint
  FROM made                                                                                             --? hint
;

-- name: wake
-- Send hints for queues when the transaction commits: their names only.
SELECT pg_notify('{schema}_wake', queue)
  FROM json_array_elements_text(:queues::text::json) AS queue;

-- name: present
-- The ids that exist, among those given.
SELECT id::text
  FROM {schema}.jobs
 WHERE id = ANY(ARRAY(SELECT json_array_elements_text(:ids::text::json)::uuid));

-- name: holder
-- The unfinished job that has a key, and whether it recurs.
SELECT id::text, status, schedule IS NOT NULL
  FROM {schema}.jobs
 WHERE type = :type::text
   AND key = :key::text
   AND status IN ({unfinished});

-- name: first_by_idempotency_key
-- The job that has an idempotency key, whatever its status.
SELECT id::text
  FROM {schema}.jobs
 WHERE type = :type::text
   AND idempotency_key = :idempotency_key::text;

-- name: replace
-- Give the unfinished job that has a key the values of a newer request: a waiting job runs with them, a running job runs
-- again with them.
UPDATE {schema}.jobs
   SET priority = :priority::bigint,
       rank = CASE WHEN :aging::bigint IS NULL THEN -:priority::bigint
                   ELSE (extract(epoch FROM COALESCE(:run_at::text::timestamptz, {now} + :delay::bigint * interval '1 microsecond')) * 1000000)::bigint
                        - :priority::bigint * :aging::bigint END,
       expires_at = {now} + :expires::bigint * interval '1 microsecond',
       entity_type = :entity_type::text,
       entity_id = :entity_id::text,
       max_attempts = :max_attempts::integer,
       timeout = :timeout::double precision,
       payload = :payload::text::json,
       attempts = CASE WHEN status = 'running' THEN attempts ELSE 0 END,
       status = CASE WHEN status = 'blocked' AND limit_key IS NOT NULL AND NOT :moves::boolean THEN 'pending'
                     WHEN NOT :moves::boolean OR status = 'running' OR (status = 'blocked' AND limit_key IS NULL) THEN status
                     WHEN COALESCE(:run_at::text::timestamptz, {now} + :delay::bigint * interval '1 microsecond') > {now} THEN 'scheduled'
                     ELSE 'pending' END,
       run_at = CASE WHEN NOT :moves::boolean OR status = 'running' THEN run_at
                     ELSE COALESCE(:run_at::text::timestamptz, {now} + :delay::bigint * interval '1 microsecond') END,
       rerun_at = CASE WHEN status <> 'running' THEN NULL
                       WHEN :moves::boolean THEN COALESCE(:run_at::text::timestamptz, {now} + :delay::bigint * interval '1 microsecond')
                       ELSE {now} END,
       verdict = CASE WHEN status = 'running' THEN verdict END,
       unreadable_since = CASE WHEN status = 'running' THEN unreadable_since END,
       updated_at = {now}
 WHERE id = :holder::text::uuid
   AND status IN ({unfinished})
RETURNING id::text;

-- name: promote
-- Make due jobs pending, the longest due first.
UPDATE {schema}.jobs
   SET status = 'pending',
       updated_at = {now}
 WHERE id = ANY(ARRAY(SELECT id
                        FROM {schema}.jobs
                       WHERE status IN ({promote})
                         AND enabled
                         AND run_at <= {now}
                       ORDER BY run_at, id
                       LIMIT :limit::int
                         FOR NO KEY UPDATE SKIP LOCKED))
RETURNING queue;

-- name: next_due
-- Microseconds until the next job is due, or until the rate of a key has capacity; 0 or less: now.
SELECT LEAST((SELECT (extract(epoch FROM run_at - {now}) * 1000000)::bigint
                FROM {schema}.jobs
               WHERE status IN ({promote})
                 AND enabled
               ORDER BY run_at, id
               LIMIT 1),
             (SELECT (extract(epoch FROM wake_at - {now}) * 1000000)::bigint
                FROM {schema}.keys
               WHERE wake_at IS NOT NULL
               ORDER BY wake_at
               LIMIT 1));

-- name: cancel
-- Cancel waiting jobs, and ask running ones to stop.
UPDATE {schema}.jobs
   SET status = CASE WHEN status = 'running' THEN status ELSE 'cancelled' END,
       cancel_requested = true,
       completed_at = CASE WHEN status <> 'running' THEN {now} END,
       keep_until = CASE WHEN status <> 'running' THEN {now} + new.keep * interval '1 microsecond' END,
       rerun_at = NULL,
       updated_at = {now}
  FROM json_to_recordset(:batch::text::json) AS new (job_id uuid, keep bigint)
 WHERE id = new.job_id
   AND id = ANY(ARRAY(SELECT wanted.job_id FROM json_to_recordset(:batch::text::json) AS wanted (job_id uuid)))
   AND COALESCE(status, '') IN ({cancel}, {request_cancel})
   AND COALESCE(status, '') = ANY(ARRAY(SELECT json_array_elements_text(:statuses::text::json)))         --? only
   AND (schedule IS NULL OR status = 'running')
RETURNING id::text;

-- name: retry
-- Run jobs again from the beginning, unless another unfinished job has the key. Of several jobs with one key: the
-- unfinished one, or the first.
WITH asked AS MATERIALIZED (
    SELECT id, key, row_number() OVER (PARTITION BY type, key ORDER BY COALESCE(status, '') IN ({finished}), id) AS place
      FROM {schema}.jobs
     WHERE id = ANY(ARRAY(SELECT job_id FROM json_to_recordset(:batch::text::json) AS new (job_id uuid)))
       AND COALESCE(status, '') IN ({retry})
)
UPDATE {schema}.jobs
   SET status = 'pending',
       attempts = 0,
       crashes = 0,
       deaths = 0,
       suspect = false,
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
       cancel_requested = false,
       seen = CASE WHEN workflow_id IS NOT NULL THEN 'retried' END,
       result = NULL,
       updated_at = {now}
 WHERE id = ANY(ARRAY(SELECT id FROM asked WHERE place = 1 OR key IS NULL))
   AND COALESCE(status, '') IN ({retry})
   AND COALESCE(status, '') = ANY(ARRAY(SELECT json_array_elements_text(:statuses::text::json)))         --? only
   AND NOT EXISTS (SELECT 1
                     FROM {schema}.jobs AS live
                    WHERE live.type = jobs.type
                      AND live.key = jobs.key
                      AND live.status IN ({unfinished})
                      AND live.id <> jobs.id
                   OFFSET 0)
RETURNING id::text, queue;

-- name: delete
-- Delete jobs in any status. The run of a deleted job ends without a record.
DELETE FROM {schema}.jobs
 WHERE id = ANY(ARRAY(SELECT job_id FROM json_to_recordset(:batch::text::json) AS new (job_id uuid)))
   AND COALESCE(status, '') = ANY(ARRAY(SELECT json_array_elements_text(:statuses::text::json)))         --? only
RETURNING id::text, limit_key, status, queue;

-- name: edit
-- Give a waiting job another priority, time or queue. A job that is parked for a limit stays parked if it is due, one
-- that waits for another job stays blocked. A job that has aged keeps its age.
WITH given AS MATERIALIZED (
    SELECT COALESCE(:run_at::text::timestamptz, {now} + :delay::bigint * interval '1 microsecond') AS moment
)
UPDATE {schema}.jobs
   SET priority = COALESCE(:priority::bigint, priority),
       rank = CASE WHEN rank = -priority THEN -COALESCE(:priority::bigint, priority)
                   ELSE rank - (COALESCE(:priority::bigint, priority) - priority) * COALESCE(:aging::bigint, 0)
                        + (extract(epoch FROM COALESCE(given.moment, run_at) - run_at) * 1000000)::bigint END,
       queue = COALESCE(:queue::text, queue),
       status = CASE WHEN given.moment IS NULL THEN status
                     WHEN status = 'blocked' AND (limit_key IS NULL OR given.moment <= {now}) THEN status
                     WHEN given.moment <= {now} THEN 'pending'
                     WHEN status = 'retrying' THEN status
                     ELSE 'scheduled' END,
       run_at = COALESCE(given.moment, run_at),
       updated_at = {now}
  FROM given
 WHERE id = :id::text::uuid
   AND COALESCE(status, '') IN ({waiting})
   AND (schedule IS NULL OR given.moment IS NULL)
   AND (:aging::bigint IS NOT NULL OR rank = -priority OR COALESCE(:priority::bigint, priority) = priority)
RETURNING id::text, queue;

-- name: pause
-- Pause a queue, or resume it.
INSERT INTO {schema}.queues (name, paused_at, resume_at)
VALUES (:name::text, CASE WHEN :paused::boolean THEN {now} END,
        COALESCE(:resume_at::text::timestamptz, {now} + :resume_in::bigint * interval '1 microsecond'))
ON CONFLICT (name) DO UPDATE
   SET paused_at = CASE WHEN NOT :paused::boolean THEN NULL
                        WHEN queues.resume_at <= {now} THEN {now}
                        ELSE COALESCE(queues.paused_at, {now}) END,
       resume_at = excluded.resume_at;
