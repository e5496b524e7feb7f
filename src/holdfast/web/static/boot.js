/* Runs before the first paint, so that the chosen theme does not flash. */
(() => {
  try {
    const theme = localStorage.getItem('holdfast.theme');
    if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
  } catch { /* storage may be forbidden: then the system decides */ }
})();
