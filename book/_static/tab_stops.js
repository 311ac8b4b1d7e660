// The theme makes what scrolls reachable by keyboard, where it is laid out; here the rest follows,
// when it comes near the view.
document.addEventListener("contentvisibilityautostatechange", ({ skipped, target }) => {
  if (skipped) return;
  for (const box of target.querySelectorAll("pre, .cell_output > .output")) {
    box.tabIndex = box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight ? 0 : -1;
  }
});
