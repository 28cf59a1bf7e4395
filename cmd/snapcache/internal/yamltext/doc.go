// Package yamltext writes JSON as YAML, as kubectl prints it.
package yamltext
