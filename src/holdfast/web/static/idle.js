/**
 * Named moments for browser tests: `window.holdfastIdle` is true when no request is in flight
 * and the last answer has been drawn; `window.holdfastRequests` counts the requests so far.
 */
let busy = 0;
let turn = 0;
window.holdfastIdle = false;
window.holdfastRequests = 0;

export function begin() {
  busy += 1;
  turn += 1;
  window.holdfastIdle = false;
}

export function end() {
  busy -= 1;
  settle();
}

/** Idle again once the browser has drawn what came, if nothing else began meanwhile. */
export function settle() {
  const mine = ++turn;
  window.holdfastIdle = false;
  // Effects run after a frame, and what they change is drawn in another one.
  afterFrame(() => afterFrame(() => { if (busy === 0 && mine === turn) window.holdfastIdle = true; }));
}

function afterFrame(callback) {
  if (document.hidden) setTimeout(callback, 0);
  else requestAnimationFrame(() => setTimeout(callback, 0));
}

/** Follows a promise from its beginning to its end. */
export async function during(promise) {
  begin();
  try {
    return await promise;
  } finally {
    end();
  }
}
