-- Tokens, secrets, the audit log.
-- Nothing here changes an entry of the audit log: entries are added, read, and, when old, deleted.
-- The same names in the same order as in access.sqlite.sql. How they are written: engine/script.py.

-- name: hold_tokens
-- Lock the tokens: one transaction at a time checks whether there is any, and makes the first.
SELECT pg_advisory_xact_lock(hashtext('{schema}.tokens'));

-- name: any_token
-- Whether a token was ever made, apart from the one with this id (which exists if its insert was sent before).
SELECT EXISTS (SELECT 1 FROM {schema}.tokens WHERE kind = 'token' AND id <> :id::text::uuid);

-- name: add_token
-- Add a token, or a session of a token. If it exists, its insert was sent before: return the row.
INSERT INTO {schema}.tokens (id, hash, name, role, kind, scope, parent_id, created_at, expires_at, created_by)
VALUES (:id::text::uuid, :hash::text, :name::text, :role::text, :kind::text, :scope::text, :parent_id::text::uuid, {now},
        {now} + :life::bigint * interval '1 microsecond', :created_by::text)
ON CONFLICT (id) DO UPDATE
   SET name = excluded.name
RETURNING id::text, name, role, kind, scope, parent_id::text, created_at, expires_at, revoked_at, last_used_at, created_by;

-- name: find_token
-- The token with this hash, if it is valid, and whether the time of its last use must be written. A session is valid only
-- as long as its token is.
SELECT tokens.id::text, tokens.name, tokens.role, tokens.kind, tokens.scope, tokens.parent_id::text,
       tokens.created_at, tokens.expires_at, tokens.revoked_at, tokens.last_used_at, tokens.created_by,
       tokens.hash, COALESCE(tokens.last_used_at <= {now} - :fresh::bigint * interval '1 microsecond', TRUE)
  FROM {schema}.tokens AS tokens
  LEFT JOIN {schema}.tokens AS parents ON parents.id = tokens.parent_id
 WHERE tokens.hash = :hash::text
   AND tokens.revoked_at IS NULL
   AND (tokens.expires_at IS NULL OR tokens.expires_at > {now})
   AND (tokens.parent_id IS NULL
        OR (parents.id IS NOT NULL
            AND parents.revoked_at IS NULL
            AND (parents.expires_at IS NULL OR parents.expires_at > {now})));

-- name: touch_token
-- Write the time of the last use of a token or session, and of the session's token.
UPDATE {schema}.tokens
   SET last_used_at = {now}
 WHERE id = ANY(ARRAY[:id::text::uuid, :parent_id::text::uuid]);

-- name: tokens
-- All tokens, or all sessions, the newest first.
SELECT id::text, name, role, kind, scope, parent_id::text, created_at, expires_at, revoked_at, last_used_at, created_by
  FROM {schema}.tokens
 WHERE kind = :kind::text
 ORDER BY tokens.id DESC
 LIMIT :limit::int;

-- name: revoke_token
-- Revoke a token; if it is revoked already, the time stays.
UPDATE {schema}.tokens
   SET revoked_at = COALESCE(revoked_at, {now})
 WHERE id = :id::text::uuid
RETURNING id::text, name, role, kind, scope, parent_id::text, created_at, expires_at, revoked_at, last_used_at, created_by;

-- name: end_session
-- Delete a session.
DELETE FROM {schema}.tokens
 WHERE hash = :hash::text
   AND kind = 'session';

-- name: prune_sessions
-- Delete expired sessions: a bounded search.
DELETE FROM {schema}.tokens
 WHERE id = ANY(ARRAY(SELECT id
                        FROM {schema}.tokens
                       WHERE kind = 'session'
                         AND expires_at <= {now}
                       ORDER BY expires_at
                       LIMIT :limit::int));

-- name: keep_secret
-- Add a secret of this database, unless one has its name already.
INSERT INTO {schema}.secrets (name, value)
VALUES (:name::text, :value::text)
ON CONFLICT DO NOTHING;

-- name: secret
-- A secret by its name.
SELECT value
  FROM {schema}.secrets
 WHERE name = :name::text;

-- name: record
-- Add an entry to the audit log, unless it exists (its insert was sent before).
INSERT INTO {schema}.audit (id, at, actor, role, action, target, detail, address, request_id)
VALUES (:id::text::uuid, {now}, :actor::text, :role::text, :action::text, :target::text, :detail::text, :address::text, :request_id::text)
ON CONFLICT DO NOTHING;

-- name: entries
-- A page of the audit log, the newest entries first.
SELECT id::text, at, actor, role, action, target, detail, address, request_id
  FROM {schema}.audit
 WHERE id < :before::text::uuid
 ORDER BY audit.id DESC
 LIMIT :limit::int;

-- name: prune_audit
-- Delete the oldest entries of the audit log: those that are too old, and those beyond the number that is kept; a bounded
-- search.
DELETE FROM {schema}.audit
 WHERE id = ANY(ARRAY(SELECT look.id
                        FROM (SELECT id, at, number
                                FROM {schema}.audit
                               ORDER BY id
                               LIMIT :limit::int) AS look
                       WHERE look.at < {now} - :age::bigint * interval '1 microsecond'
                          OR look.number <= (SELECT number FROM {schema}.audit ORDER BY id DESC LIMIT 1) - :kept::bigint));
