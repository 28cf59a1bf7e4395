package store

// Description is the server's information about a collection's resource, beside [Info]: its other names,
// and the columns and selectable fields of a custom resource. Objects do not depend on it.
type Description struct {
	// Singular, ShortNames and Categories are the resource's other names, as kubectl takes them.
	Singular   string   `json:"singular,omitempty"`
	ShortNames []string `json:"shortNames,omitempty"`
	Categories []string `json:"categories,omitempty"`

	// ListKind is the kind of a list of the resource; empty for the usual one, the kind with "List".
	ListKind string `json:"listKind,omitempty"`

	// Subresources are the ones whose GET returns the whole object, such as "status".
	Subresources []string `json:"subresources,omitempty"`

	// Custom is set for a resource of a CustomResourceDefinition. Columns and SelectableFields
	// belong to the version that is cached.
	Custom           bool     `json:"custom,omitempty"`
	Columns          []Column `json:"columns,omitempty"`
	SelectableFields []string `json:"selectableFields,omitempty"` // JSON paths, such as ".spec.size"
}

// Column is an additional printer column of a custom resource, see CustomResourceColumnDefinition of
// apiextensions.k8s.io/v1.
type Column struct {
	Name        string `json:"name"`
	Type        string `json:"type"`
	Format      string `json:"format,omitempty"`
	Description string `json:"description,omitempty"`
	Priority    int32  `json:"priority,omitempty"`
	JSONPath    string `json:"jsonPath"`
}
