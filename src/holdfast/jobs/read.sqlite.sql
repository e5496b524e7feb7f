-- Read jobs, queues and workers. Each statement looks at a bounded number of rows.
-- The same names in the same order as in read.postgres.sql. How they are written: engine/script.py.

-- name: suspects
-- How many jobs with deaths on record wait, by queue, type and level: a bounded search. Paused queues are left out.
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

-- name: get
-- Jobs by id, with their bodies.
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
-- A page of jobs, the newest first: a bounded walk of one index, filtered. Payloads are read only for a filter of
-- payloads: two paths give a list as JSON text, in which numbers are as they were written.
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
   AND worker_id = :worker_id                                   --? worker_id
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
-- Where the walk of `search` ended: the last id, and the number of rows.
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
-- How many jobs have each of some statuses, counted up to a cap, all in one snapshot: in separate statements, a job that
-- changes its status meanwhile could be counted in none.
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
-- All workers that have a row.
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
