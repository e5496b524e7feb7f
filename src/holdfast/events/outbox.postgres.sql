-- Events, written with the change that they report.
-- The same names in the same order as in outbox.sqlite.sql. How they are written: engine/script.py.

-- name: followed_topics
-- The topics that are followed.
SELECT topic
  FROM {schema}.followers
 WHERE until > {now}
 LIMIT :limit::int;

-- name: emit
-- Write events of jobs, with their rows as they are now. A finished job's event says so; a failed run that is followed
-- by another is `retrying`. The transaction gets its number before its first position: readers rely on that.
INSERT INTO {schema}.events (at, job_id, kind, data)
SELECT {now}, jobs.id,
       CASE WHEN jobs.status IN ({finished}) THEN jobs.status
            WHEN :kind::text = 'failed' THEN 'retrying'
            ELSE :kind::text END,
       json_build_object(
           'type', jobs.type, 'queue', jobs.queue, 'status', jobs.status,
           'entity_type', jobs.entity_type, 'entity_id', jobs.entity_id,
           'attempts', jobs.attempts, 'max_attempts', jobs.max_attempts, 'claim_no', jobs.claim_no,
           'worker_id', jobs.worker_id, 'run_at', jobs.run_at, 'error', jobs.error,
           'result', CASE WHEN :kind::text = 'completed' AND octet_length(jobs.result::text) <= :result::int THEN jobs.result::text END,
           'result_left_out', :kind::text = 'completed' AND COALESCE(octet_length(jobs.result::text), 0) > :result::int,
           'progress', jobs.progress, 'message', jobs.message)
  FROM (SELECT txid_current() AS number OFFSET 0) AS own
 CROSS JOIN json_array_elements_text(:ids::text::json) WITH ORDINALITY AS told (id, place)
 CROSS JOIN LATERAL (SELECT * FROM {schema}.jobs WHERE jobs.id = told.id::uuid LIMIT 1) AS jobs
 WHERE own.number > 0
   AND (NOT :final::boolean OR jobs.status IN ({finished}))
 ORDER BY told.place
RETURNING position;

-- name: ring
-- Wake the followers when the transaction commits.
SELECT pg_notify('{schema}_events', '');

-- name: lock_outbox
-- Lock the outbox: one transaction at a time reads the followers and acts on them.
SELECT floor
  FROM {schema}.outbox
   FOR UPDATE;

-- name: followed_since
-- By topic: the positions from which on all its events are written.
SELECT topic, since
  FROM {schema}.followers
 WHERE until > {now}
   AND topic IN (SELECT json_array_elements_text(:topics::text::json));

-- name: begin_topics
-- Add a row without a job: some topic is written from its position on. (The lock on the outbox has given the transaction
-- its number already.)
INSERT INTO {schema}.events (at, job_id, kind, data)
VALUES ({now}, '00000000-0000-0000-0000-000000000000', :kind::text, '{}')
RETURNING position;

-- name: raise_floor
-- Raise the floor: events up to this position cannot be read any more.
UPDATE {schema}.outbox
   SET floor = GREATEST(floor, :floor::bigint);

-- name: subscribe
-- Add or renew the subscription of a reader to topics.
INSERT INTO {schema}.followers (name, topic, until, since)
SELECT :name::text, key, {now} + :life::bigint * interval '1 microsecond', value::bigint
  FROM json_each_text(:since::text::json)
ON CONFLICT (name, topic) DO UPDATE
   SET until = GREATEST(followers.until, excluded.until), since = excluded.since;

-- name: is_subscribed
-- Whether a subscription is alive.
SELECT EXISTS (SELECT 1 FROM {schema}.followers WHERE name = :name::text AND until > {now});

-- name: outbox_bounds
-- The last position that was given to an event, and the position behind which all events can be read.
SELECT (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {schema}.events_position_seq),
       (SELECT floor FROM {schema}.outbox);

-- name: mark
-- A transaction number, higher than that of any transaction before. (A snapshot's xmax is not: it is one more than the
-- last number that has ended, and later transactions may be running.)
SELECT txid_current();

-- name: ended
-- The number before which all transactions have ended.
SELECT txid_snapshot_xmin(txid_current_snapshot());

-- name: events
-- Events behind a position, in order.
SELECT position, at, job_id::text, kind, data::text, (SELECT floor FROM {schema}.outbox)
  FROM {schema}.events
 WHERE position > :after::bigint
 ORDER BY position
 LIMIT :limit::int;

-- name: prune_events
-- Delete the oldest events: those up to a position, and those that are too old; a bounded search.
DELETE FROM {schema}.events
 WHERE position = ANY(ARRAY(SELECT old.position
                              FROM (SELECT position, at
                                      FROM {schema}.events
                                     WHERE position > 0
                                     ORDER BY position
                                     LIMIT :limit::int) AS old
                             WHERE old.position <= :bound::bigint
                                OR old.at < {now} - :age::bigint * interval '1 microsecond'))
RETURNING position;

-- name: prune_followers
-- Delete subscriptions whose time is over.
DELETE FROM {schema}.followers
 WHERE until <= {now};
