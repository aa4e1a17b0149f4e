"""The second half of the script of pages: the bar that zooms, picking, sorting and filtering."""

from __future__ import annotations

from typing import Final

MORE: Final = r"""
// -- picking a job or a queue ------------------------------------------------------------------
const rows=$("#jobs tbody tr");
const byJob=new Map(rows.map(r=>[+r.dataset.j,r]));
function pick(what){
 picked=what;
 for(const p of plots){
  if(!p.data||p.data.kind!=="gantt"||p.data.jobs)continue;
  p.svg.classList.toggle("dim",!!what);
  for(const g of $("g.hot",p.svg))g.remove();
  names(p);
  if(!what)continue;
  const g=doc.createElementNS(SVG,"g"),d=p.data,paths=new Map();g.setAttribute("class","hot");
  for(let i=0,n=0;i<d.bars.length;i+=6,n++){
   const job=run.jobs[d.bars[i+4]];if(!job||!chosen(d.bars[i+4],job))continue;
   const look=d.looks[d.look[n]];
   paths.set(look,(paths.get(look)||"")+`M${d.bars[i+2]} ${d.bars[i]}h${d.bars[i+3]}v${d.bars[i+1]}h-${d.bars[i+3]}z`);
  }
  for(const[look,path]of paths){const e=doc.createElementNS(SVG,"path");e.setAttribute("class",look);e.setAttribute("d",path);g.append(e)}
  p.svg.append(g);
 }
 for(const r of rows)r.classList.remove("hot");
 const chip=doc.getElementById("picked");
 if(chip){
  chip.textContent=!what?"":"\u2715 "+(what.queue!==undefined?"queue "+(what.queue||"(none)"):(run.jobs[what.job]||["?"])[0]);
 }
 if(what&&what.job!==undefined){const r=byJob.get(what.job);if(r)r.classList.add("hot")}
 sift();
}
const field=doc.querySelector(".filter input");
function sift(){
 const text=field?field.value.trim().toLowerCase():"";let seen=0;
 for(const r of rows){
  const job=run.jobs[+r.dataset.j];
  const ok=(!text||r.textContent.toLowerCase().includes(text))&&(!picked||picked.queue===undefined||run.queues[job[1]]===picked.queue);
  r.hidden=!ok;if(ok)seen++;
 }
 const count=doc.getElementById("seen");if(count)count.textContent=seen===rows.length?"":` ${seen} of ${rows.length} shown`;
 if(picked&&picked.job!==undefined){const r=byJob.get(picked.job),box=r&&r.closest(".tall");if(box)box.scrollTop=r.offsetTop-60}
}
if(field)field.addEventListener("input",sift);
for(const r of rows)r.addEventListener("click",()=>pick({job:+r.dataset.j}));
for(const b of $("button[data-queue]"))b.addEventListener("click",()=>{
 const q=b.dataset.queue;pick(picked&&picked.queue===q?null:{queue:q})});

// -- tables ------------------------------------------------------------------------------------
const value=c=>{if(c&&c.dataset.v!==undefined)return[0,+c.dataset.v,""];const t=c?c.textContent:"",n=parseFloat(t.replace(/,/g,"").replace("\u2212","-"));
 return/^[\u2212+-]?\d/.test(t)?[0,n,t]:[t===""||t==="\u2013"?2:1,0,t]};
for(const table of $("table.sortable")){
 $("thead th",table).forEach((th,at)=>{
  const b=el("button",th.textContent);b.type="button";th.textContent="";th.append(b);
  b.addEventListener("click",()=>{
   const up=th.getAttribute("aria-sort")!=="ascending";
   for(const o of $("th",table))o.removeAttribute("aria-sort");
   th.setAttribute("aria-sort",up?"ascending":"descending");
   const body=table.tBodies[0],all=[...body.rows].map((r,i)=>[value(r.cells[at]),i,r]);
   all.sort(([a,i],[c,j])=>(a[0]-c[0])||((a[0]?(a[2]<c[2]?-1:a[2]>c[2]?1:0):a[1]-c[1])*(up?1:-1))||i-j);
   body.append(...all.map(e=>e[2]));
  });
 });
}

// -- the bar -----------------------------------------------------------------------------------
const bar=doc.getElementById("bar");
if(bar&&plots.some(p=>p.timed)){
 bar.hidden=false;
 const mid=()=>(from+to)/2;
 const act={in:()=>around(mid(),.5),out:()=>around(mid(),2),all:()=>zoom(0,run.wide)};
 for(const b of $("button[data-zoom]",bar))b.addEventListener("click",act[b.dataset.zoom]);
 const chip=doc.getElementById("picked");if(chip)chip.addEventListener("click",()=>pick(null));
 const mini=doc.getElementById("mini");let start=null;
 const at=e=>{const r=mini.getBoundingClientRect();return run.wide*Math.min(1,Math.max(0,(e.clientX-r.left)/r.width))};
 mini.addEventListener("pointerdown",e=>{
  const x=at(e),inside=x>from&&x<to&&to-from<run.wide;
  start={x,move:inside,from,to};mini.setPointerCapture(e.pointerId)});
 mini.addEventListener("pointermove",e=>{
  if(!start)return;const x=at(e);
  if(start.move){const by=x-start.x;zoom(start.from+by,start.to+by)}
  else if(Math.abs(x-start.x)>run.wide/200)zoom(Math.min(start.x,x),Math.max(start.x,x))});
 mini.addEventListener("pointerup",()=>{start=null});
 mini.addEventListener("pointercancel",()=>{start=null});
 mini.addEventListener("dblclick",()=>zoom(0,run.wide));
}
let later=0;
addEventListener("resize",()=>{cancelAnimationFrame(later);later=requestAnimationFrame(draw)});
draw();
})();"""
