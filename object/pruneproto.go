package object

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// step is a part of a path in protobuf: a field of a message or, if number is 0, an entry of a map.
type step struct {
	number protowire.Number
	key    string
}

// For returns p with its paths also for the protobuf of objects like example, a pointer to a Go type
// of the Kubernetes API. The type has the field numbers. It fails if a path leads to no field of the
// type, or into a list.
func (p Prune) For(example any) (Prune, error) {
	typ := reflect.TypeOf(example).Elem()
	p.steps = nil
	for _, path := range p.paths {
		steps, err := stepsOf(typ, path)
		if err != nil {
			return Prune{}, fmt.Errorf("drop %s from a %s: %w", path, typ, err)
		}
		p.steps = append(p.steps, steps)
	}
	return p, nil
}

// stepsOf returns a path in the protobuf of a Go type.
func stepsOf(typ reflect.Type, path string) (steps []step, err error) {
	for _, name := range splitPath(path) {
		for typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		switch typ.Kind() {
		case reflect.Struct:
			to, field := fieldOf(typ, name)
			if to == nil {
				return nil, fmt.Errorf("there is no field %q", name)
			}
			steps, typ = append(steps, to...), field
		case reflect.Map:
			steps, typ = append(steps, step{key: name}), typ.Elem()
		default:
			return nil, fmt.Errorf("%q is in a %s", name, typ.Kind())
		}
	}
	return steps, nil
}

// fieldOf returns the steps to a field of a struct, by its name in JSON, and its type; nil if there
// is none.
func fieldOf(typ reflect.Type, name string) ([]step, reflect.Type) {
	for i := range typ.NumField() {
		field := typ.Field(i)
		parts := strings.Split(field.Tag.Get("protobuf"), ",") // as in "bytes,1,opt,name=metadata"
		if len(parts) < 2 {
			continue
		}
		n, err := strconv.ParseInt(parts[1], 10, 32)
		if err != nil {
			continue
		}
		to := []step{{number: protowire.Number(n)}}
		json, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if json == name {
			return to, field.Type
		}
		if json == "" && options == "inline" && field.Type.Kind() == reflect.Struct {
			if within, inner := fieldOf(field.Type, name); within != nil {
				return append(to, within...), inner
			}
		}
	}
	return nil, nil
}

// splitPath splits a path at the dots that are not escaped.
func splitPath(path string) []string {
	const dot = "\x00"
	names := strings.Split(strings.ReplaceAll(path, `\.`, dot), ".")
	for i := range names {
		names[i] = strings.ReplaceAll(names[i], dot, ".")
	}
	return names
}

// appendProtobuf is [Prune.Append] for protobuf.
func (p Prune) appendProtobuf(dst, raw []byte) ([]byte, error) {
	if len(p.steps) != len(p.paths) {
		return nil, fmt.Errorf("drop %s: the object is protobuf of an unknown type", strings.Join(p.paths, ", "))
	}
	message := raw[len(protobufPrefix):]
	for _, steps := range p.steps {
		var err error
		if message, err = without(nil, message, append([]step{{number: unknownRaw}}, steps...)); err != nil {
			return nil, err
		}
	}
	return append(append(dst, protobufPrefix...), message...), nil
}

// without appends a message to dst without what is at steps, at least one.
func without(dst, message []byte, steps []step) ([]byte, error) {
	for len(message) > 0 {
		number, typ, size := protowire.ConsumeField(message)
		if size < 0 {
			return nil, fmt.Errorf("%w: %w", ErrInvalid, protowire.ParseError(size))
		}
		field := message[:size]
		message = message[size:]
		switch {
		case number != steps[0].number:
		case len(steps) == 1:
			continue
		case typ == protowire.BytesType:
			_, _, tag := protowire.ConsumeTag(field)
			value, _ := protowire.ConsumeBytes(field[tag:])
			within := steps[1:]
			if within[0].number == 0 {
				key, err := ProtobufField(value, entryKey)
				if err != nil {
					return nil, err
				}
				if string(key) != within[0].key {
					break
				}
				if len(within) == 1 {
					continue
				}
				within = append([]step{{number: entryValue}}, within[1:]...)
			}
			rest, err := without(nil, value, within)
			if err != nil {
				return nil, err
			}
			dst = protowire.AppendBytes(protowire.AppendTag(dst, number, protowire.BytesType), rest)
			continue
		}
		dst = append(dst, field...)
	}
	return dst, nil
}
