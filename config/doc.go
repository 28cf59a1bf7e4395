// Package config is the agent's configuration file: its types, its defaults, and a strict decoder
// whose result the rest of the agent can rely on.
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
// Every value that [Load] and [Parse] return without an error has these properties:
//
//   - Nothing in the file was ignored. A field that is unknown, given twice, written in another case
//     or of another type is an error, not a silent default.
//   - Text is taken literally: a plain no or 0123 in a text field never turns into "false" or "83".
//   - Every default is filled in, so that no reader of the value needs to know one.
//   - Selectors, field paths, names, sizes and durations parse.
//   - Secrets are among the resources only if the file contains the sentence [SecretsConsent].
//
// Some faults only the server can find, and this package does not: whether a resource exists and is
// namespaced, whether two names mean one resource (deployments and deployments.apps do), and
// whether a short name means secrets.
//
// All faults of a file are reported at once, as [Error] values joined with [errors.Join], one line
// each, in the order of the file.
package config
