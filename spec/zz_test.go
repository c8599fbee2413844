package spec
import ("testing";"fmt";"os";"google.golang.org/protobuf/encoding/prototext")
func TestZ(t *testing.T){
 b,_:=os.ReadFile("testdata/classic.yaml")
 s,err:=Parse("c.yaml",b,Options{})
 fmt.Println(err, prototext.Format(s))
 _,err=Parse("x.yaml",[]byte(`job:
  nam: x
  array: 1
  priority: hihg
  tasks:
    - id: a
      comand: [x]
      needs: [b]
    - id: 12
      run: echo
    - id: b
      run: x
      type: map
      needs: [c, d, d]
      retry: 3
      timeout: 10
    - id: c
      needs: [a, b]
      command: [echo, 3]
      timeout: 0s
      env: {A: 1, DTASK_X: a}
      resources: {cpu: 0.0001, memory: 256Mi}
      run: x
    - id: c
      run: x
      retry: {max: -1, except: [exit2, "signal:SIGKILL"], on: oom}
`),Options{})
 fmt.Println(err)
}
