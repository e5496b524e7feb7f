-- Recurring jobs.
-- The same names in the same order as in scripts.sqlite.sql. How they are written: engine/script.py.

-- name: find_schedule
-- A recurring job by its task and key, locked for this transaction.
SELECT {columns}
  FROM {schema}.jobs
 WHERE type = :type::text
   AND key = :key::text
   AND status IN ({unfinished})
   FOR UPDATE;

-- name: renew_schedule
-- Enable a recurring job and give it new arguments and a new schedule; its next run stays. `updated_at` stays too:
-- applications declare their schedules at each start, and a row that was written later than now proves a step of the
-- clock (clock_repair.py).
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
-- Enable or disable a recurring job; a run that has begun goes on to its end.
UPDATE {schema}.jobs
   SET enabled = :enabled::boolean,
       disabled_because = :because::text,
       crashes = CASE WHEN :enabled::boolean THEN 0 ELSE crashes END,
       status = CASE WHEN :enabled::boolean OR status = 'running' THEN status ELSE 'scheduled' END,
       updated_at = greatest(updated_at, {now})
 WHERE id = :id::text::uuid
   AND schedule IS NOT NULL;

-- name: move_schedule
-- Choose the next run of a recurring job; if it is running, the run after this one.
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
-- Recurring jobs that were disabled, but not by an operator, and why.
SELECT type, key, disabled_because
  FROM {schema}.jobs
 WHERE disabled_because IS NOT NULL
 ORDER BY type, key
 LIMIT :limit::int;

-- name: recurring_types
-- The tasks that have recurring jobs: one step of an index for each task.
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
