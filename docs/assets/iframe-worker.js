// Browsers start no worker for a page from the disk. There the search runs in a hidden frame instead, so that it
// works without a server; the theme's own answer to this is fetched from elsewhere.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.onmessage = null;
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => setTimeout(() => this.hear(data)); // later, as a worker's would
      const script = inside.document.createElement("script");
      script.src = new URL(url, document.baseURI).href;
      script.onload = () => this.begin();
      script.onerror = (event) => this.onerror?.(event);
      inside.document.body.append(script);
    }
    hear(data) {
      const event = new MessageEvent("message", { data });
      this.onmessage?.(event);
      this.dispatchEvent(event);
    }
    begin() {
      const waiting = this.waiting;
      this.waiting = null;
      waiting.forEach((data) => this.postMessage(data));
    }
    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else setTimeout(() => this.tell(data));
    }
    tell(data) {
      this.frame.contentWindow?.dispatchEvent(new MessageEvent("message", { data }));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
