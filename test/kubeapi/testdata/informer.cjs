// Prints the pods that an informer of @kubernetes/client-node has, when it has listed and after a change to the
// pod "z-last" of the namespace in the first argument, which is the last one. Names are sorted.
const { createRequire } = require("module");
const k8s = createRequire(process.cwd() + "/")("@kubernetes/client-node");

const config = new k8s.KubeConfig();
config.loadFromDefault();
const namespace = process.argv[2];
const api = config.makeApiClient(k8s.CoreV1Api);
const path = `/api/v1/namespaces/${namespace}/pods`;
const informer = k8s.makeInformer(config, path, () => api.listNamespacedPod({ namespace }));
const pods = new Set();
informer.on("add", (pod) => {
  pods.add(pod.metadata.name);
  if (pod.metadata.name === "z-last") {
    console.log([...pods].sort().join("\n"));
    process.exit(0);
  }
});
informer.on("error", (err) => {
  console.error(err);
  process.exit(1);
});
informer.start();
setTimeout(() => process.exit(2), 60000);
