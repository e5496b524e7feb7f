-- Times that are too far ahead after the clock was set back.
-- The same names in the same order as in clock_repair.sqlite.sql. How they are written: engine/script.py.

-- name: wake_keys_early
-- Wake keys whose rate would have capacity only later than its period allows, since the clock was set back; some at a
-- time.
UPDATE {schema}.keys
   SET wake_at = {now}
 WHERE key = ANY(ARRAY(SELECT few.key
                         FROM (SELECT key, name, wake_at
                                 FROM {schema}.keys
                                WHERE key > :after::text
                                ORDER BY key
                                LIMIT :limit::int
                                  FOR UPDATE SKIP LOCKED) AS few
                    LEFT JOIN {schema}.limits ON limits.name = few.name
                        WHERE few.wake_at > {now} + (COALESCE(limits.set_period, limits.period, 0) * 101 / 100 + :margin::bigint) * interval '1 microsecond'))
RETURNING key;

-- name: clock
-- The database's clock.
SELECT {now};

-- name: ahead
-- Waiting jobs, some at a time, that were last written later than now and have a record of a run.
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
-- The last job that `ahead` reads, if there may be more jobs behind it.
SELECT run_at, id::text
  FROM {schema}.jobs
 WHERE status IN ({promote})
   AND enabled
   AND (run_at, id) > (:run_at::text::timestamptz, COALESCE(:id::text::uuid, '00000000-0000-0000-0000-000000000000'))
 ORDER BY run_at, id
 LIMIT 1 OFFSET :limit::int - 1;

-- name: bring_forward
-- Let a waiting job run sooner, unless its row was written meanwhile.
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
