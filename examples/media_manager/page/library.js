// The library, and what is being done for it. What comes from elsewhere is only ever drawn as text.

const find = (id) => document.getElementById(id);

async function ask(method, path, body) {
  const answer = await fetch(path, {
    method,
    headers: { "X-Api-Key": sessionStorage.getItem("api-key") ?? "", "Content-Type": "application/json" },
    body: body && JSON.stringify(body),
  });
  const told = await answer.json();
  if (answer.ok) return told;
  throw Object.assign(new Error(told.detail ?? answer.statusText), { status: answer.status });
}

// An error without the name of its kind, which is for programmers.
const said = (error) => error.replace(/^\w+: /, "");

// The socket of a signed link: it tells first how the job stands, and ends with it.
function follow(path, tell) {
  const socket = new WebSocket(new URL(path, location.href.replace(/^http/, "ws")));
  let over = false;
  socket.onmessage = ({ data }) => {
    const told = JSON.parse(data);
    over = ["job:complete", "job:failed", "job:cancelled"].includes(told.event);
    tell(told.event, told.data);
  };
  socket.onclose = ({ code }) => {
    if (over) return;
    if (code === 4401 || code === 4404) tell("lost", {});
    else setTimeout(follow, 1000, path, tell); // the server starts anew: so do we
  };
}

class Item {
  constructor(media) {
    this.media = media;
    this.root = find("item").content.cloneNode(true).firstElementChild;
    this.button = this.part("button");
    this.button.onclick = () => this.enrich();
    this.part("progress").setAttribute("aria-label", `Progress of ${media.title}`);
    this.offer("Enrich");
    this.draw(media);
  }

  part(name) {
    return this.root.querySelector(name);
  }

  draw({ title, year, kind, state }) {
    this.root.dataset.title = title;
    this.part("h2").textContent = year ? `${title} (${year})` : title;
    this.part(".state").textContent = `${kind}, ${state}`;
  }

  offer(words) {
    this.button.textContent = words;
    this.button.setAttribute("aria-label", `${words}: ${this.media.title}`);
  }

  async enrich() {
    this.button.disabled = true;
    this.show("waiting", "Waiting for a free worker");
    this.part("progress").removeAttribute("value");
    try {
      const payload = { entity_type: this.media.kind, entity_id: this.media.id, manual: true };
      const job = await ask("POST", "../api/v1/jobs", { type: "enrich-metadata", priority: 1, payload });
      follow(job.follow, (event, data) => this.tell(event, data));
    } catch (problem) {
      this.end("failed", problem.message);
    }
  }

  tell(event, data) {
    if (event === "job:progress" && data.status === "retrying") {
      this.show("retrying", "This attempt has failed; it is tried again."); // why was told before we listened
    } else if (event === "job:progress") {
      if (data.progress !== null) this.part("progress").value = data.progress;
      this.show(data.status, data.message ?? "Waiting for a free worker");
    } else if (event === "job:retrying") {
      const again = new Date(data.run_at).toLocaleTimeString();
      this.show("retrying", `${said(data.error)}. Attempt ${data.attempts} of ${data.max_attempts}; again at ${again}.`);
    } else if (event === "job:complete") {
      this.part("progress").value = 100;
      this.end("completed", `Done: ${data.result.assetsDownloaded} assets`);
      this.draw({ ...this.media, state: "enriched" });
    } else if (event === "job:failed") {
      this.end("failed", `Failed after ${data.attempts} of ${data.max_attempts} attempts. ${said(data.error)}`);
    } else if (event === "job:cancelled") {
      this.end("cancelled", "Cancelled");
    } else if (event === "lost") {
      this.end("failed", "This job cannot be followed any more. Load the page again.");
    }
  }

  show(status, message) {
    this.root.dataset.status = status;
    this.part(".run").hidden = false;
    this.part(".message").textContent = message;
  }

  end(status, message) {
    this.show(status, message);
    this.button.disabled = false;
    this.offer(status === "failed" ? "Try again" : "Enrich again");
  }
}

async function open() {
  find("refused").textContent = "";
  try {
    const media = await ask("GET", "../api/v1/media");
    find("enter").hidden = true;
    find("count").textContent = media.length === 1 ? "1 title" : `${media.length} titles`;
    find("media").replaceChildren(...media.map((one) => new Item(one).root));
  } catch (problem) {
    if (problem.status === 401 && sessionStorage.getItem("api-key")) find("refused").textContent = "This is not the key.";
    if (problem.status !== 401) find("refused").textContent = problem.message;
    find("enter").hidden = false;
    find("key").focus();
  }
}

find("enter").onsubmit = (event) => {
  event.preventDefault();
  sessionStorage.setItem("api-key", find("key").value);
  open();
};
open();
