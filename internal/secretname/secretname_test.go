package secretname

import "testing"

func TestAVariableHasOnlyCharactersOfVariables(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"db": "DTASK_SECRET_DB_FILE", "api-key": "DTASK_SECRET_API_KEY_FILE", "tls.key": "DTASK_SECRET_TLS_KEY_FILE", "1_B": "DTASK_SECRET_1_B_FILE",
	} {
		if got := Variable(name); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}
