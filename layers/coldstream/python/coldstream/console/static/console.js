// What pages have beyond links, forms and htmx: they work without any of it.
(() => {
  "use strict";

  // A screen reader is told what has changed, and only if it has: a part that is fetched every two seconds says nothing new.
  const announce = () => {
    const announcer = document.getElementById("announcer");
    const told = [...document.querySelectorAll("[data-announce]")].map((one) => one.textContent.trim()).join(". ");
    if (announcer && told && announcer.textContent !== told) announcer.textContent = told;
  };
  document.addEventListener("htmx:afterSettle", announce);

  // A notice of an error goes once the same part could be fetched again.
  document.addEventListener("htmx:afterRequest", (event) => {
    const notice = document.getElementById("notice");
    if (event.detail.successful && notice && notice.hasChildNodes()) notice.replaceChildren();
  });
  document.addEventListener("htmx:sendError", () => {
    const notice = document.getElementById("notice");
    if (notice) notice.textContent = "The console does not answer. It is tried again.";
  });

  // A search goes on by itself until it is stopped, or a slice of it fails; then a link goes on.
  const stop = (more) => {
    htmx.trigger(more, "htmx:abort");
    more.removeAttribute("hx-trigger");
    more.classList.add("stopped");
    more.querySelector("a")?.focus();
  };
  document.addEventListener("click", (event) => {
    const more = event.target.closest("[data-stop]")?.closest(".more");
    if (more) stop(more);
  });
  const failed = (event) => {
    if (event.target.classList?.contains("more")) event.target.classList.add("stopped");
  };
  document.addEventListener("htmx:responseError", failed);
  document.addEventListener("htmx:sendError", failed);

  // "/" goes to the field that a page is searched with.
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (/^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName ?? "")) return;
    const field = document.querySelector('[data-shortcut="/"]');
    if (!field) return;
    event.preventDefault();
    field.focus();
    field.select();
  });

  // A form that is sent is not sent twice by a second click.
  document.addEventListener("submit", (event) => {
    if (event.target.method !== "post" || event.defaultPrevented) return;
    if (event.target.dataset.sent) event.preventDefault();
    event.target.dataset.sent = "yes";
  });
  window.addEventListener("pageshow", () => {
    document.querySelectorAll("form[data-sent]").forEach((form) => delete form.dataset.sent);
  });
})();
