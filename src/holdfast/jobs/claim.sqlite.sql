-- Find the jobs that run next, and make them running.
-- The same names in the same order as in claim.postgres.sql; only PostgreSQL has `claim` and `claim_types`: here `look` and
-- `take`, in one transaction, are quicker than an UPDATE that returns rows. How they are written: engine/script.py.

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
-- Some of the pending jobs with deaths on record, of one level or of any (docs/decisions/0021).
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
-- Make the jobs that `look` returned running.
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

-- name: claimable_types
-- The types of which the queue holds pending jobs, among those given; and, in further rows, the capacities of some limits
-- without keys, in the columns of `capacities` (limits/scripts.sqlite.sql).
SELECT wanted.value, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
  FROM json_each(:types) AS wanted
 WHERE EXISTS (SELECT 1 FROM holdfast_jobs INDEXED BY holdfast_jobs_claim
                WHERE status = 'pending' AND queue = :queue AND type = wanted.value AND suspect = 0)
 UNION ALL
SELECT keys.key,
       COALESCE(limits.set_concurrency, limits.concurrency),
       COALESCE(limits.set_rate, limits.rate),
       COALESCE(limits.set_period, limits.period),
       keys.starts,
       NULL, NULL, NULL,
       {now},
       (SELECT COUNT(*) FROM holdfast_jobs INDEXED BY holdfast_jobs_slots
         WHERE status = 'running' AND limit_name = keys.key)
  FROM holdfast_keys AS keys
 CROSS JOIN holdfast_limits AS limits ON limits.name = keys.name
 WHERE keys.key IN (SELECT value FROM json_each(:keys));

-- name: park
-- Park jobs: they wait for free capacity under their key.
UPDATE holdfast_jobs
   SET status = 'blocked',
       limit_key = :limit_key,
       updated_at = {now}
 WHERE id IN (SELECT value FROM json_each(:ids))
   AND status IN ({park});
