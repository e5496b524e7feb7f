-- Events, written with the change that they report.
-- The same names in the same order as in outbox.postgres.sql. How they are written: engine/script.py.

-- name: followed_topics
-- The topics that are followed.
SELECT topic
  FROM holdfast_followers
 WHERE until > {now}
 LIMIT :limit;

-- name: emit
-- Write events of jobs, with their rows as they are now. A finished job's event says so; a failed run that is followed
-- by another is `retrying`.
INSERT INTO holdfast_events (at, job_id, kind, data)
SELECT {now}, jobs.id,
       CASE WHEN jobs.status IN ({finished}) THEN jobs.status
            WHEN :kind = 'failed' THEN 'retrying'
            ELSE :kind END,
       json_object(
           'type', jobs.type, 'queue', jobs.queue, 'status', jobs.status,
           'entity_type', jobs.entity_type, 'entity_id', jobs.entity_id,
           'attempts', jobs.attempts, 'max_attempts', jobs.max_attempts, 'claim_no', jobs.claim_no,
           'worker_id', jobs.worker_id, 'run_at', jobs.run_at, 'error', jobs.error,
           'result', CASE WHEN :kind = 'completed' AND length(CAST(results.result AS BLOB)) <= :result THEN results.result END,
           'result_left_out', :kind = 'completed' AND COALESCE(length(CAST(results.result AS BLOB)), 0) > :result,
           'progress', jobs.progress, 'message', jobs.message)
  FROM json_each(:ids) AS told
 CROSS JOIN holdfast_jobs AS jobs ON jobs.id = told.value
  LEFT JOIN holdfast_results AS results ON results.job_id = jobs.id
 WHERE NOT :final OR jobs.status IN ({finished})
 ORDER BY told.key;

-- name: ring
-- Wake the followers. Nothing to do: the kernel reports every commit (wakeups.py).
SELECT 1;

-- name: lock_outbox
-- Nothing to lock: there is one writer at a time.
SELECT floor
  FROM holdfast_outbox;

-- name: followed_since
-- By topic: the positions from which on all its events are written.
SELECT topic, since
  FROM holdfast_followers
 WHERE until > {now}
   AND topic IN (SELECT value FROM json_each(:topics));

-- name: begin_topics
-- Add a row without a job: some topic is written from its position on.
INSERT INTO holdfast_events (at, job_id, kind, data)
VALUES ({now}, '', :kind, '{}')
RETURNING position;

-- name: raise_floor
-- Raise the floor: events up to this position cannot be read any more.
UPDATE holdfast_outbox
   SET floor = MAX(floor, :floor);

-- name: subscribe
-- Add or renew the subscription of a reader to topics.
INSERT INTO holdfast_followers (name, topic, until, since)
SELECT :name, key, {now} + :life, value
  FROM json_each(:since)
 WHERE true
ON CONFLICT (name, topic) DO UPDATE
   SET until = MAX(until, excluded.until), since = excluded.since;

-- name: is_subscribed
-- Whether a subscription is alive.
SELECT EXISTS (SELECT 1 FROM holdfast_followers WHERE name = :name AND until > {now});

-- name: outbox_bounds
-- The last position that was given to an event, and the position behind which all events can be read.
SELECT COALESCE((SELECT seq FROM sqlite_sequence WHERE name = 'holdfast_events'), 0),
       (SELECT floor FROM holdfast_outbox);

-- name: mark
-- Nothing to compare: positions are in the order of commits.
SELECT 0;

-- name: ended
-- Nothing to compare: all rows that can be read are committed.
SELECT 1;

-- name: events
-- Events behind a position, in order.
SELECT position, at, job_id, kind, data, (SELECT floor FROM holdfast_outbox)
  FROM holdfast_events
 WHERE position > :after
 ORDER BY position
 LIMIT :limit;

-- name: prune_events
-- Delete the oldest events: those up to a position, and those that are too old; a bounded search.
DELETE FROM holdfast_events
 WHERE position IN (SELECT position
                      FROM (SELECT position, at
                              FROM holdfast_events
                             WHERE position > 0
                             ORDER BY position
                             LIMIT :limit)
                     WHERE position <= :bound
                        OR at < {now} - :age)
RETURNING position;

-- name: prune_followers
-- Delete subscriptions whose time is over.
DELETE FROM holdfast_followers
 WHERE until <= {now};
