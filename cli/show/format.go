package show

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"go.yaml.in/yaml/v4"
)

// WriteJSON writes one indented JSON document.
func WriteJSON(w io.Writer, doc any) error {
	text, err := marshal(doc)
	if err != nil {
		return err
	}
	if _, err := w.Write(text); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}

// WriteYAML writes the same document as WriteJSON, in the same order, as YAML.
func WriteYAML(w io.Writer, doc any) error {
	text, err := marshal(doc)
	if err != nil {
		return err
	}
	var node yaml.Node
	if err = yaml.Unmarshal(text, &node); err != nil { // JSON is YAML
		return fmt.Errorf("making YAML: %w", err)
	}
	block(&node)
	text, err = yaml.Marshal(&node)
	if err != nil {
		return fmt.Errorf("making YAML: %w", err)
	}
	if _, err = w.Write(text); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}

// block takes JSON's braces and quotes off; the encoder puts back those quotes
// without which a string would read as a number.
func block(n *yaml.Node) {
	if len(n.Content) > 0 || n.Kind == yaml.ScalarNode {
		n.Style = 0
	}
	for _, c := range n.Content {
		block(c)
	}
}

func marshal(doc any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(doc); err != nil {
		return nil, fmt.Errorf("making JSON: %w", err)
	}
	return b.Bytes(), nil
}
