// Browsers start no worker from a page that was opened as a file, so the search of the site would be off there.
// For such pages this stands in for Worker: the script runs in a hidden frame, and messages go both ways.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.onmessage = this.onerror = this.onmessageerror = null;
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.listen = ({ data, source }) => {
        if (source !== this.frame.contentWindow) return;
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      window.addEventListener("message", this.listen);
      const inside = document.implementation.createHTMLDocument("");
      const bridge = inside.createElement("script");
      bridge.textContent = "window.postMessage = message => parent.postMessage(message, '*');";
      const script = inside.createElement("script");
      script.src = new URL(address, document.baseURI).href;
      inside.head.append(bridge, script);
      this.frame.addEventListener("load", () => {
        const waiting = this.waiting;
        this.waiting = null;
        waiting.forEach(message => this.postMessage(message));
      });
      this.frame.srcdoc = inside.documentElement.outerHTML;
      document.body.append(this.frame);
    }
    postMessage(data) {
      const message = structuredClone(data); // as a worker gets it: what it changes is its own
      if (this.waiting) this.waiting.push(message);
      else setTimeout(() => this.deliver(message)); // a worker answers later, never while it is asked
    }
    deliver(data) {
      const inside = this.frame.contentWindow;
      if (inside) inside.dispatchEvent(new inside.MessageEvent("message", { data }));
    }
    terminate() {
      window.removeEventListener("message", this.listen);
      this.frame.remove();
    }
  };
}
