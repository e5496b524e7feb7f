-- Tokens, secrets, the audit log.
-- Nothing here changes an entry of the audit log: entries are added, read, and, when old, deleted.
-- The same names in the same order as in access.postgres.sql. How they are written: engine/script.py.

-- name: hold_tokens
-- Nothing to lock: there is one writer at a time.
SELECT 1;

-- name: any_token
-- Whether a token was ever made, apart from the one with this id (which exists if its insert was sent before).
SELECT EXISTS (SELECT 1 FROM holdfast_tokens WHERE kind = 'token' AND id <> :id);

-- name: add_token
-- Add a token, or a session of a token. If it exists, its insert was sent before: return the row.
INSERT INTO holdfast_tokens (id, hash, name, role, kind, scope, parent_id, created_at, expires_at, created_by)
VALUES (:id, :hash, :name, :role, :kind, :scope, :parent_id, {now}, {now} + :life, :created_by)
ON CONFLICT (id) DO UPDATE
   SET name = excluded.name
RETURNING id, name, role, kind, scope, parent_id, created_at, expires_at, revoked_at, last_used_at, created_by;

-- name: find_token
-- The token with this hash, if it is valid, and whether the time of its last use must be written. A session is valid only
-- as long as its token is.
SELECT tokens.id, tokens.name, tokens.role, tokens.kind, tokens.scope, tokens.parent_id,
       tokens.created_at, tokens.expires_at, tokens.revoked_at, tokens.last_used_at, tokens.created_by,
       tokens.hash, COALESCE(tokens.last_used_at <= {now} - :fresh, TRUE)
  FROM holdfast_tokens AS tokens
  LEFT JOIN holdfast_tokens AS parents ON parents.id = tokens.parent_id
 WHERE tokens.hash = :hash
   AND tokens.revoked_at IS NULL
   AND (tokens.expires_at IS NULL OR tokens.expires_at > {now})
   AND (tokens.parent_id IS NULL
        OR (parents.id IS NOT NULL
            AND parents.revoked_at IS NULL
            AND (parents.expires_at IS NULL OR parents.expires_at > {now})));

-- name: touch_token
-- Write the time of the last use of a token or session, and of the session's token.
UPDATE holdfast_tokens
   SET last_used_at = {now}
 WHERE id IN (:id, :parent_id);

-- name: tokens
-- All tokens, or all sessions, the newest first.
SELECT id, name, role, kind, scope, parent_id, created_at, expires_at, revoked_at, last_used_at, created_by
  FROM holdfast_tokens
 WHERE kind = :kind
 ORDER BY id DESC
 LIMIT :limit;

-- name: revoke_token
-- Revoke a token; if it is revoked already, the time stays.
UPDATE holdfast_tokens
   SET revoked_at = COALESCE(revoked_at, {now})
 WHERE id = :id
RETURNING id, name, role, kind, scope, parent_id, created_at, expires_at, revoked_at, last_used_at, created_by;

-- name: end_session
-- Delete a session.
DELETE FROM holdfast_tokens
 WHERE hash = :hash
   AND kind = 'session';

-- name: prune_sessions
-- Delete expired sessions: a bounded search.
DELETE FROM holdfast_tokens
 WHERE id IN (SELECT id
                FROM holdfast_tokens INDEXED BY holdfast_tokens_sessions
               WHERE kind = 'session'
                 AND expires_at <= {now}
               ORDER BY expires_at
               LIMIT :limit);

-- name: keep_secret
-- Add a secret of this database, unless one has its name already.
INSERT INTO holdfast_secrets (name, value)
VALUES (:name, :value)
ON CONFLICT DO NOTHING;

-- name: secret
-- A secret by its name.
SELECT value
  FROM holdfast_secrets
 WHERE name = :name;

-- name: record
-- Add an entry to the audit log, unless it exists (its insert was sent before).
INSERT INTO holdfast_audit (id, at, actor, role, action, target, detail, address, request_id)
VALUES (:id, {now}, :actor, :role, :action, :target, :detail, :address, :request_id)
ON CONFLICT DO NOTHING;

-- name: entries
-- A page of the audit log, the newest entries first.
SELECT id, at, actor, role, action, target, detail, address, request_id
  FROM holdfast_audit
 WHERE id < :before
 ORDER BY id DESC
 LIMIT :limit;

-- name: prune_audit
-- Delete the oldest entries of the audit log: those that are too old, and those beyond the number that is kept; a bounded
-- search.
DELETE FROM holdfast_audit
 WHERE id IN (SELECT id
                FROM (SELECT id, at, number
                        FROM holdfast_audit
                       WHERE id > ''
                       ORDER BY id
                       LIMIT :limit) AS look
               WHERE at < {now} - :age
                  OR number <= (SELECT number FROM holdfast_audit WHERE id > '' ORDER BY id DESC LIMIT 1) - :kept);
