-- Times that are too far ahead after the clock was set back.
-- The same names in the same order as in clock_repair.postgres.sql. How they are written: engine/script.py.

-- name: wake_keys_early
-- Wake keys whose rate would have capacity only later than its period allows, since the clock was set back; some at a
-- time.
UPDATE holdfast_keys
   SET wake_at = {now}
 WHERE key IN (SELECT few.key
                 FROM (SELECT keys.key, keys.name, keys.wake_at
                         FROM holdfast_keys AS keys
                        WHERE keys.key > :after
                        ORDER BY keys.key
                        LIMIT :limit) AS few
            LEFT JOIN holdfast_limits AS limits ON limits.name = few.name
                WHERE few.wake_at > {now} + COALESCE(limits.set_period, limits.period, 0) * 101 / 100 + :margin)
RETURNING key;

-- name: clock
-- The database's clock.
SELECT {now};

-- name: ahead
-- Waiting jobs, some at a time, that were last written later than now and have a record of a run.
SELECT look.id, look.run_at, look.due_at, look.updated_at, look.schedule, runs.finished_at
  FROM (SELECT id, run_at, due_at, updated_at, schedule, claim_no
          FROM holdfast_jobs INDEXED BY holdfast_jobs_due
         WHERE status IN ({promote})
           AND enabled
           AND (run_at, id) > (:run_at, COALESCE(:id, ''))
         ORDER BY run_at, id
         LIMIT :limit) AS look
 CROSS JOIN holdfast_attempts AS runs ON runs.job_id = look.id AND runs.claim_no = look.claim_no
 WHERE look.updated_at > {now};

-- name: ahead_edge
-- The last job that `ahead` reads, if there may be more jobs behind it.
SELECT run_at, id
  FROM holdfast_jobs INDEXED BY holdfast_jobs_due
 WHERE status IN ({promote})
   AND enabled
   AND (run_at, id) > (:run_at, COALESCE(:id, ''))
 ORDER BY run_at, id
 LIMIT 1 OFFSET :limit - 1;

-- name: bring_forward
-- Let a waiting job run sooner, unless its row was written meanwhile.
UPDATE holdfast_jobs
   SET rank = CASE WHEN rank = -priority THEN rank ELSE rank + :run_at - run_at END,
       run_at = :run_at,
       due_at = :due_at,
       updated_at = {now}
 WHERE id = :id
   AND status IN ({promote})
   AND updated_at = :written
RETURNING queue;
