package show

import (
	"fmt"
	"io"

	"go.yaml.in/yaml/v4"

	"github.com/dtask/dtask/internal/document"
)

// WriteJSON writes one indented JSON document.
func WriteJSON(w io.Writer, doc any) error {
	text, err := document.MarshalIndent(doc)
	return write(w, append(text, '\n'), err)
}

// WriteJSONLine writes a JSON document on one line.
func WriteJSONLine(w io.Writer, doc any) error {
	text, err := document.Marshal(doc)
	return write(w, append(text, '\n'), err)
}

func write(w io.Writer, text []byte, err error) error {
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
	text, err := document.Marshal(doc)
	if err != nil {
		return err
	}
	var node yaml.Node
	if err = yaml.Unmarshal(text, &node); err != nil { // JSON is YAML
		return fmt.Errorf("encoding YAML: %w", err)
	}
	block(&node)
	text, err = yaml.Marshal(&node)
	return write(w, text, err)
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
