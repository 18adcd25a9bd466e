// Runs Perfetto's own engine, as its web page does, but in Node.
//
//     node perfetto_engine.cjs FOLDER < requests > replies
//
// FOLDER is that of the web page: engine_bundle.js, and trace_processor.wasm beside it.
// The bundle is written for a web worker. It gets the few things of one that it uses: a
// file by XMLHttpRequest, and a port through which requests and replies go, in the
// protobuf of the engine's RPC.

const fs = require("fs");
const path = require("path");
const vm = require("vm");

const folder = process.argv[2];
const read = (name) => fs.readFileSync(path.join(folder, name));

class XMLHttpRequest {
  open(method, url) {
    this.url = url;
  }
  send() {
    const data = read(this.url);
    this.status = 200;
    this.response = new Uint8Array(data).buffer;
  }
}

const port = {
  postMessage(reply) {
    fs.writeSync(1, reply);
  },
};
const worker = {
  WorkerGlobalScope: class {},
  XMLHttpRequest,
  console: { log: console.error, warn: console.error, error: console.error },
  location: { href: "http://worker/engine_bundle.js" },
  importScripts() {},
  performance,
  setTimeout,
  TextDecoder,
  TextEncoder,
  URL,
};
worker.self = worker;
vm.createContext(worker);
const WorkersBytes = vm.runInContext("Uint8Array", worker);
vm.runInContext(read("engine_bundle.js").toString(), worker);
worker.onmessage({ data: port });
setTimeout(() => {
  const requests = fs.readFileSync(0);
  port.onmessage({ data: new WorkersBytes(requests) });
}, 0);
