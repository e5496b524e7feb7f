-- Find the jobs that run next, and make them running.
-- The same names in the same order as in claim.sqlite.sql; only this file has `claim` and `claim_types`, which find jobs and
-- make them running in one statement. How they are written: engine/script.py.

-- name: claim
-- Make the first pending jobs of one type in one queue running, in the order of running; rows that other transactions have
-- locked are skipped. The walk of the index begins behind (rank, run_at, id), where this worker's last claim ended: the
-- entries before it are mostly dead ones of claimed jobs, and reading them takes time.
WITH wanted AS MATERIALIZED (
    SELECT *
      FROM json_to_recordset(:types::text::json) AS wanted (type text, rank bigint, run_at timestamptz, id uuid)
     WHERE EXISTS (SELECT 1 FROM {schema}.workers WHERE id = :worker::text AND died_at IS NULL)
       AND NOT EXISTS (SELECT 1 FROM {schema}.queues
                        WHERE name = :queue::text AND paused_at IS NOT NULL AND (resume_at IS NULL OR resume_at > {now}))
       AND NOT EXISTS (SELECT 1 FROM {schema}.limits WHERE name = 'queue:' || :queue::text)
)
UPDATE {schema}.jobs
   SET status = 'running',
       worker_id = :worker::text,
       claim_no = claim_no + 1,
       attempts = attempts + 1,
       started_at = {now},
       updated_at = {now},
       progress = NULL,
       message = NULL,
       limit_name = NULL,
       limit_key = NULL,
       limit_queue = NULL
 WHERE id = ANY(ARRAY(SELECT taken.id
                        FROM wanted
                  CROSS JOIN LATERAL (SELECT id
                                        FROM {schema}.jobs
                                       WHERE status = 'pending'
                                         AND queue = :queue::text
                                         AND type = wanted.type
                                         AND NOT suspect
                                         AND (rank, run_at, id) > (wanted.rank, wanted.run_at, wanted.id)
                                       ORDER BY rank, run_at, id
                                       LIMIT :limit::int
                                         FOR NO KEY UPDATE SKIP LOCKED) AS taken))
RETURNING {claimed}, jobs.started_at, jobs.payload::text;

-- name: claim_types
-- The same for several types: the first jobs of all of them. `shape` counts, without locks, how many of them each type
-- has; then each type's own subquery locks that many.
WITH wanted AS MATERIALIZED (
    SELECT *
      FROM json_to_recordset(:types::text::json) AS wanted (type text, rank bigint, run_at timestamptz, id uuid)
     WHERE EXISTS (SELECT 1 FROM {schema}.workers WHERE id = :worker::text AND died_at IS NULL)
       AND NOT EXISTS (SELECT 1 FROM {schema}.queues
                        WHERE name = :queue::text AND paused_at IS NOT NULL AND (resume_at IS NULL OR resume_at > {now}))
       AND NOT EXISTS (SELECT 1 FROM {schema}.limits WHERE name = 'queue:' || :queue::text)
), shape AS MATERIALIZED (
    SELECT best.type, count(*) AS size
      FROM (SELECT wanted.type
              FROM wanted
        CROSS JOIN LATERAL (SELECT rank, run_at, id
                              FROM {schema}.jobs
                             WHERE status = 'pending'
                               AND queue = :queue::text
                               AND type = wanted.type
                               AND NOT suspect
                               AND (rank, run_at, id) > (wanted.rank, wanted.run_at, wanted.id)
                             ORDER BY rank, run_at, id
                             LIMIT :limit::int) AS head
             ORDER BY head.rank, head.run_at, head.id
             LIMIT :limit::int) AS best
     GROUP BY best.type
)
UPDATE {schema}.jobs
   SET status = 'running',
       worker_id = :worker::text,
       claim_no = claim_no + 1,
       attempts = attempts + 1,
       started_at = {now},
       updated_at = {now},
       progress = NULL,
       message = NULL,
       limit_name = NULL,
       limit_key = NULL,
       limit_queue = NULL
 WHERE id = ANY(ARRAY(SELECT taken.id
                        FROM wanted
                        JOIN shape USING (type)
                  CROSS JOIN LATERAL (SELECT id
                                        FROM {schema}.jobs
                                       WHERE status = 'pending'
                                         AND queue = :queue::text
                                         AND type = wanted.type
                                         AND NOT suspect
                                         AND (rank, run_at, id) > (wanted.rank, wanted.run_at, wanted.id)
                                       ORDER BY rank, run_at, id
                                       LIMIT shape.size
                                         FOR NO KEY UPDATE SKIP LOCKED) AS taken))
RETURNING {claimed}, jobs.started_at, jobs.payload::text;

-- name: look
-- The first pending jobs of one type or several in one queue, in the order of running, each type up to a limit of its own.
-- Their rows stay locked until this transaction ends.
SELECT {claimed}, jobs.payload::text                                                                    --? one
  FROM {schema}.jobs                                                                                    --? one
 WHERE jobs.status = 'pending'                                                                          --? one
   AND jobs.queue = :queue::text                                                                        --? one
   AND jobs.type = :type::text                                                                          --? one
   AND NOT jobs.suspect                                                                                 --? one
   AND EXISTS (SELECT 1 FROM {schema}.workers WHERE id = :worker::text AND died_at IS NULL)             --? one
   AND NOT EXISTS (SELECT 1 FROM {schema}.queues                                                        --? one
                    WHERE name = :queue::text AND paused_at IS NOT NULL AND (resume_at IS NULL OR resume_at > {now})) --? one
   AND (:guard::text = '' OR NOT EXISTS (SELECT 1 FROM {schema}.limits WHERE name = 'queue:' || :queue::text)) --? one
 ORDER BY jobs.rank, jobs.run_at, jobs.id                                                               --? one
 LIMIT :limit::int                                                                                      --? one
   FOR NO KEY UPDATE OF jobs SKIP LOCKED                                                                --? one
WITH wanted AS MATERIALIZED (                                                                           --? several
    SELECT *                                                                                            --? several
      FROM json_to_recordset(:types::text::json) AS wanted (type text, "limit" int, rank bigint, run_at timestamptz, id uuid) --? several
     WHERE EXISTS (SELECT 1 FROM {schema}.workers WHERE id = :worker::text AND died_at IS NULL)         --? several
       AND NOT EXISTS (SELECT 1 FROM {schema}.queues                                                    --? several
                        WHERE name = :queue::text AND paused_at IS NOT NULL AND (resume_at IS NULL OR resume_at > {now})) --? several
       AND (:guard::text = '' OR NOT EXISTS (SELECT 1 FROM {schema}.limits WHERE name = 'queue:' || :queue::text)) --? several
), best AS MATERIALIZED (                                                                               --? several
    SELECT head.id, head.rank, head.run_at                                                              --? several
      FROM wanted                                                                                       --? several
CROSS JOIN LATERAL (SELECT id, rank, run_at                                                             --? several
                      FROM {schema}.jobs                                                                --? several
                     WHERE status = 'pending'                                                           --? several
                       AND queue = :queue::text                                                         --? several
                       AND type = wanted.type                                                           --? several
                       AND NOT suspect                                                                  --? several
                       AND (rank, run_at, id) > (wanted.rank, wanted.run_at, wanted.id)                 --? several
                     ORDER BY rank, run_at, id                                                          --? several
                     LIMIT wanted."limit"                                                               --? several
                       FOR NO KEY UPDATE SKIP LOCKED) AS head                                           --? several
     ORDER BY head.rank, head.run_at, head.id                                                           --? several
     LIMIT :limit::int                                                                                  --? several
)                                                                                                       --? several
SELECT {claimed}, jobs.payload::text                                                                    --? several
  FROM {schema}.jobs                                                                                    --? several
 WHERE jobs.id = ANY(ARRAY(SELECT best.id FROM best))                                                   --? several
 ORDER BY jobs.rank, jobs.run_at, jobs.id                                                               --? several
;

-- name: look_suspects
-- Some of the pending jobs with deaths on record, of one level or of any (docs/decisions/0021).
SELECT {claimed}, jobs.deaths, jobs.payload::text
  FROM {schema}.jobs
 WHERE jobs.status = 'pending'
   AND jobs.suspect
   AND (:level::int IS NULL OR LEAST(GREATEST(jobs.deaths, 1), 3) = :level::int)
   AND jobs.type IN (SELECT json_array_elements_text(:types::text::json))
   AND jobs.queue IN (SELECT json_array_elements_text(:queues::text::json))
   AND jobs.queue NOT IN (SELECT name FROM {schema}.queues WHERE paused_at IS NOT NULL AND (resume_at IS NULL OR resume_at > {now}))
   AND EXISTS (SELECT 1 FROM {schema}.workers WHERE id = :worker::text AND died_at IS NULL)
 ORDER BY jobs.rank, jobs.run_at, jobs.id
 LIMIT :limit::int
   FOR NO KEY UPDATE OF jobs SKIP LOCKED;

-- name: take
-- Make the jobs that `look` returned running.
UPDATE {schema}.jobs
   SET status = 'running',
       worker_id = :worker::text,
       claim_no = claim_no + 1,
       attempts = attempts + 1,
       started_at = {now},
       updated_at = {now},
       progress = NULL,
       message = NULL,
       limit_name = NULL,
       limit_key = NULL,
       limit_queue = NULL
 WHERE id = ANY(ARRAY(SELECT json_array_elements_text(:ids::text::json)::uuid))
RETURNING id::text, started_at;

-- name: take_limited
-- The same for jobs that count under limits.
UPDATE {schema}.jobs
   SET status = 'running',
       worker_id = :worker::text,
       claim_no = claim_no + 1,
       attempts = attempts + 1,
       started_at = {now},
       updated_at = {now},
       progress = NULL,
       message = NULL,
       limit_name = new.limit_name,
       limit_key = new.limit_key,
       limit_queue = new.limit_queue
  FROM json_to_recordset(:batch::text::json) AS new (id uuid, limit_name text, limit_key text, limit_queue text)
 WHERE jobs.id = new.id
   AND jobs.id = ANY(ARRAY(SELECT wanted.id FROM json_to_recordset(:batch::text::json) AS wanted (id uuid)))
RETURNING jobs.id::text, jobs.started_at;

-- name: claimable_types
-- The types of which the queue holds pending jobs, among those given; and, in further rows, the capacities of some limits
-- without keys, in the columns of `capacities` (limits/scripts.postgres.sql).
SELECT wanted.type, NULL::int, NULL::int, NULL::bigint, NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint
  FROM json_array_elements_text(:types::text::json) AS wanted (type)
 WHERE EXISTS (SELECT 1 FROM {schema}.jobs
                WHERE status = 'pending' AND queue = :queue::text AND type = wanted.type AND NOT suspect
                ORDER BY rank, run_at, id LIMIT 1 OFFSET 0)
 UNION ALL
SELECT keys.key,
       COALESCE(limits.set_concurrency, limits.concurrency),
       COALESCE(limits.set_rate, limits.rate),
       COALESCE(limits.set_period, limits.period),
       keys.starts,
       NULL, NULL, NULL,
       (extract(epoch FROM {now}) * 1000000)::bigint,
       (SELECT count(*) FROM (SELECT 1 FROM {schema}.jobs WHERE status = 'running' AND limit_name = ANY(ARRAY[keys.key])
                               ORDER BY limit_name OFFSET 0) AS counted)
  FROM {schema}.keys
  JOIN {schema}.limits ON limits.name = keys.name
 WHERE keys.key = ANY(ARRAY(SELECT json_array_elements_text(:keys::text::json)));

-- name: park
-- Park jobs: they wait for free capacity under their key.
UPDATE {schema}.jobs
   SET status = 'blocked',
       limit_key = new.limit_key,
       updated_at = {now}
  FROM json_to_recordset(:batch::text::json) AS new (id uuid, limit_key text)
 WHERE jobs.id = new.id
   AND jobs.id = ANY(ARRAY(SELECT wanted.id FROM json_to_recordset(:batch::text::json) AS wanted (id uuid)))
   AND COALESCE(jobs.status, '') IN ({park});
