/** The one door to third-party code: everything else imports from here. */
import { h, Fragment, render } from './vendor/preact.js';
import htm from './vendor/htm.js';

export const html = htm.bind(h);
export { h, Fragment, render };
export { useState, useEffect, useLayoutEffect, useMemo, useRef, useCallback, useErrorBoundary } from './vendor/hooks.js';
export { signal, computed, effect, batch, untracked, useSignal, useComputed } from './vendor/signals.js';

/** uPlot is fetched when the first chart is drawn. */
export const loadPlot = () => import('./vendor/uplot.js').then((module) => module.default);
