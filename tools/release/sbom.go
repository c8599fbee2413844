package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// bom is a bill of materials in the format CycloneDX 1.5, as far as it is used here.
type bom struct {
	Format       string       `json:"bomFormat"`
	SpecVersion  string       `json:"specVersion"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"` // application or library
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	Purl       string     `json:"purl"`
	Properties []property `json:"properties,omitempty"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
}

// billOfMaterials lists the modules that the compiled programs in a directory contain, which
// the linker has recorded in them, and the standard library.
func (r release) billOfMaterials(bin string) ([]byte, error) {
	product := r.application("dtask")
	doc := bom{
		Format: "CycloneDX", SpecVersion: "1.5", Version: 1,
		Metadata: metadata{Timestamp: r.date.Format(time.RFC3339), Component: product},
	}
	contains := dependency{Ref: product.Ref}
	libraries := map[string]component{}
	for _, p := range programs {
		info, err := buildinfo.ReadFile(filepath.Join(bin, p))
		if err != nil {
			return nil, fmt.Errorf("reading the modules of %s: %w", p, err)
		}
		program := r.application(p)
		doc.Components = append(doc.Components, program)
		contains.DependsOn = append(contains.DependsOn, program.Ref)
		uses := dependency{Ref: program.Ref}
		list := []component{library("std", strings.TrimPrefix(info.GoVersion, "go"), "")}
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			list = append(list, library(m.Path, m.Version, m.Sum))
		}
		for _, c := range list {
			libraries[c.Ref] = c
			uses.DependsOn = append(uses.DependsOn, c.Ref)
		}
		slices.Sort(uses.DependsOn)
		doc.Dependencies = append(doc.Dependencies, uses)
	}
	doc.Dependencies = append(doc.Dependencies, contains)
	for _, ref := range slices.Sorted(maps.Keys(libraries)) {
		doc.Components = append(doc.Components, libraries[ref])
	}
	body, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the bill of materials: %w", err)
	}
	return append(body, '\n'), nil
}

// application is dtask, or one of its programs.
func (r release) application(name string) component {
	purl := "pkg:golang/github.com/dtask/dtask@" + escape(r.version)
	if name != "dtask" {
		purl += "#cmd/" + name
	}
	return component{Type: "application", Ref: purl, Name: name, Version: r.version, Purl: purl}
}

// library is a module, or the standard library.
func library(path, version, sum string) component {
	purl := "pkg:golang/" + path + "@" + escape(version)
	c := component{Type: "library", Ref: purl, Name: path, Version: version, Purl: purl}
	if sum != "" { // a hash of the tree of files; CycloneDX has hashes of single files only
		c.Properties = []property{{"go:sum", sum}}
	}
	return c
}

// escape writes a version for a package URL.
func escape(version string) string { return strings.ReplaceAll(version, "+", "%2B") }
