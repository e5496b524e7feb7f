-- Read jobs, queues and workers. Each statement looks at a bounded number of rows.
-- The same names in the same order as in read.sqlite.sql. How they are written: engine/script.py.

-- name: suspects
-- How many jobs with deaths on record wait, by queue, type and level: a bounded search. Paused queues are left out.
SELECT queue, type, level, count(*)
  FROM (SELECT queue, type, LEAST(GREATEST(deaths, 1), 3) AS level
          FROM {schema}.jobs
         WHERE status = 'pending'
           AND suspect
         ORDER BY rank, run_at, id
         LIMIT 1000) AS seen
 WHERE queue NOT IN (SELECT name FROM {schema}.queues WHERE paused_at IS NOT NULL AND (resume_at IS NULL OR resume_at > {now}))
 GROUP BY queue, type, level
 LIMIT 300;

-- name: get
-- Jobs by id, with their bodies.
SELECT {columns}, payload::text, result::text
  FROM {schema}.jobs
 WHERE id = ANY(ARRAY(SELECT json_array_elements_text(:ids::text::json)::uuid));

-- name: attempts
-- The failed runs of a job, the newest first.
SELECT job_id::text, claim_no, attempt, worker_id, started_at, finished_at, status, error, trace
  FROM {schema}.attempts
 WHERE job_id = :id::text::uuid
 ORDER BY claim_no DESC;

-- name: last_runs
-- The newest failed run of each of these jobs: the end of its traceback, and when it was.
SELECT told.id, right(runs.trace, 8000), runs.finished_at
  FROM json_array_elements_text(:ids::text::json) AS told (id)
 CROSS JOIN LATERAL (SELECT trace, finished_at
                       FROM {schema}.attempts
                      WHERE job_id = told.id::uuid
                      ORDER BY claim_no DESC
                      LIMIT 1) AS runs;

-- name: search
-- A page of jobs, the newest first: a bounded walk of one index, filtered. Bodies are not returned. "= ANY" and the
-- order leave the planner one index to choose: by a plain "status = ..." it may walk the primary key past all other
-- jobs. A payload with escapes that text cannot hold is skipped: reading it would be an error.
SELECT {columns}
  FROM (SELECT *
          FROM {schema}.jobs                                                --? newest
          FROM {schema}.jobs                                                --? listed
          FROM {schema}.jobs                                                --? entity
          FROM (SELECT * FROM {schema}.jobs WHERE status = 'running' OFFSET 0) AS jobs --? running
         WHERE id < :before::text::uuid
           AND id >= :since::text::uuid
           AND status = ANY(ARRAY[:status::text]) AND status <> 'running'   --? listed
           AND entity_type = ANY(ARRAY[:entity_type::text])                 --? entity
           AND entity_id = :entity_id::text AND entity_type IS NOT NULL     --? entity
         ORDER BY
               status DESC,                                                 --? listed
               entity_type DESC,                                            --? entity
               id DESC
         LIMIT :scan::int) AS jobs
 WHERE TRUE
   AND status = :status::text                                               --? status
   AND queue = :queue::text                                                 --? queue
   AND type = :type::text                                                   --? type
   AND type >= :prefix::text COLLATE "C" AND type < :prefix_end::text COLLATE "C"  --? prefix
   AND key = :key::text                                                     --? key
   AND worker_id = :worker_id::text                                         --? worker_id
   AND priority >= :lowest::bigint                                          --? lowest
   AND priority <= :highest::bigint                                         --? highest
   AND NOT EXISTS (SELECT 1 FROM json_array_elements_text(:error::text::json) AS word (value) --? error
                    WHERE COALESCE(strpos(lower(jobs.error COLLATE "C"), word.value), 0) = 0)  --? error
   AND NOT EXISTS (SELECT 1 FROM json_array_elements_text(:text::text::json) AS word (value) --? text
                    WHERE strpos(lower(jobs.type COLLATE "C"), word.value) = 0           --? text
                      AND COALESCE(strpos(lower(jobs.key COLLATE "C"), word.value), 0) = 0      --? text
                      AND COALESCE(strpos(lower(jobs.error COLLATE "C"), word.value), 0) = 0    --? text
                      AND COALESCE(strpos(lower(jobs.message COLLATE "C"), word.value), 0) = 0) --? text
   AND NOT EXISTS (SELECT 1 FROM json_array_elements(:payload::text::json) AS wanted (value) --? payload
                    WHERE COALESCE(CASE WHEN jobs.payload::text !~ E'[\\\\]u(0000|[dD][89a-fA-F])' --? payload
                                        THEN (jobs.payload #> ARRAY(SELECT json_array_elements_text(wanted.value -> 'path')))::text END --? payload
                                   <> ALL(ARRAY(SELECT json_array_elements_text(wanted.value -> 'texts'))), TRUE)) --? payload
 ORDER BY id DESC
 LIMIT :limit::int;

-- name: search_edge
-- Where the walk of `search` ended: the last id, and the number of rows.
SELECT min(id::text), count(*)
  FROM (SELECT id
          FROM {schema}.jobs                                                --? newest
          FROM {schema}.jobs                                                --? listed
          FROM {schema}.jobs                                                --? entity
          FROM (SELECT * FROM {schema}.jobs WHERE status = 'running' OFFSET 0) AS jobs --? running
         WHERE id < :before::text::uuid
           AND id >= :since::text::uuid
           AND status = ANY(ARRAY[:status::text]) AND status <> 'running'   --? listed
           AND entity_type = ANY(ARRAY[:entity_type::text])                 --? entity
           AND entity_id = :entity_id::text AND entity_type IS NOT NULL     --? entity
         ORDER BY
               status DESC,                                                 --? listed
               entity_type DESC,                                            --? entity
               id DESC
         LIMIT :scan::int) AS look;

-- name: counts
-- How many jobs have each of some statuses, counted up to a cap, all in one snapshot: in separate statements, a job that
-- changes its status meanwhile could be counted in none. The planner does not know the status, which would let it choose
-- other indexes; the range makes the order by status a real one, which only one index gives. For an equal status and a
-- small cap it would read the table from its start, past every job of the other statuses.
SELECT wanted.status,
       CASE wanted.status
       WHEN 'running' THEN (SELECT count(*)
                              FROM (SELECT 1
                                      FROM {schema}.jobs
                                     WHERE status = 'running'
                                     ORDER BY worker_id, id
                                     LIMIT :cap::int) AS counted)
       ELSE (SELECT count(*)
               FROM (SELECT 1
                       FROM {schema}.jobs
                      WHERE status BETWEEN wanted.status AND wanted.status
                        AND status <> 'running'
                      ORDER BY status, id
                      LIMIT :cap::int) AS counted)
       END
  FROM json_array_elements_text(:statuses::text::json) AS wanted (status);

-- name: workers
-- All workers that have a row.
SELECT id, info, beat_no, started_at, beat_at, left_at, died_at
  FROM {schema}.workers
 ORDER BY id;

-- name: queues
-- Queues that hold pending jobs or were ever paused; depth is counted up to a cap.
WITH RECURSIVE seen (name) AS (
    (SELECT queue FROM {schema}.jobs WHERE status = 'pending' ORDER BY queue LIMIT 1)
     UNION ALL
    SELECT (SELECT queue FROM {schema}.jobs WHERE status = 'pending' AND queue > seen.name ORDER BY queue LIMIT 1)
      FROM seen
     WHERE seen.name IS NOT NULL
)
SELECT names.name,
       CASE WHEN kept.resume_at <= {now} THEN NULL ELSE kept.paused_at END,
       CASE WHEN kept.resume_at > {now} THEN kept.resume_at END,
       (SELECT count(*) FROM (SELECT 1 FROM {schema}.jobs WHERE status = 'pending' AND queue = names.name ORDER BY type, suspect, rank, run_at, id LIMIT :cap::int) AS counted)
  FROM (SELECT name FROM seen WHERE name IS NOT NULL UNION SELECT name FROM {schema}.queues) AS names
  LEFT JOIN {schema}.queues AS kept ON kept.name = names.name
 ORDER BY names.name;
