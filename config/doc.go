// Package config is the agent's configuration file: its types, its defaults, and the strict way from a
// file to a value that the rest of the agent can trust.
//
// The file is YAML, versioned as Kubernetes configuration is:
//
//	apiVersion: snapcache.dev/v1alpha1
//	kind: AgentConfiguration
//	resources:
//	- resource: pods
//	  fieldSelector: spec.nodeName=edge-1
//
// example.yaml beside this package sets and explains every field.
//
// What holds for every value that [Load] and [Parse] return without an error:
//
//   - Nothing in the file was ignored. A field that is unknown, written twice, written in another case
//     or of another type is an error, not a silent default.
//   - Text is what was written: a plain no or 0123 where text belongs never turns into "false" or "83".
//   - Every default is filled in, so that no reader of the value needs to know one.
//   - Selectors, field paths, names, sizes and durations parse.
//   - Secrets are among the resources only if the file holds the sentence [SecretsConsent].
//
// What only the server knows isn't checked here: whether a resource exists, whether it is namespaced,
// whether two names stand for one resource (deployments and deployments.apps do), and whether a short
// name stands for secrets.
//
// All that is wrong with a file is reported at once, as [Error] values joined with [errors.Join], one
// line each, in the order of the file.
package config
