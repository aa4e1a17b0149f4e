(()=>{"use strict";
const doc=document,$=(s,e=doc)=>[...e.querySelectorAll(s)],SVG="http://www.w3.org/2000/svg";
doc.documentElement.classList.add("js");
const run=JSON.parse(doc.getElementById("run").textContent);
let from=0,to=run.wide,picked=null;
const chosen=(index,job)=>!picked||(picked.queue!==undefined?run.queues[job[1]]===picked.queue:picked.job===index);
const STEPS=[.1,.2,.5,1,2,5,10,15,30,60,120,300,600,900,1800,3600,7200,10800,21600,43200,86400,172800,604800,2419200];
const num=v=>Number.isFinite(v)?v.toLocaleString("en-US",{maximumFractionDigits:Math.abs(v)<10?2:1}):"";
function span(s){
 if(s<0)return"-"+span(-s);
 if(s<60)return num(Math.round(s*10)/10)+"s";
 let w=Math.round(s);const p=[];
 for(const[n,u]of[[86400,"d"],[3600,"h"],[60,"m"],[1,"s"]]){p.push([Math.floor(w/n),u]);w%=n}
 const i=p.findIndex(e=>e[0]);return p.slice(i,i+2).filter(e=>e[0]).map(e=>e[0]+e[1]).join("");
}
const el=(tag,text,cls)=>{const e=doc.createElement(tag);if(text!==undefined)e.textContent=text;if(cls)e.className=cls;return e};
const time=x=>x/run.per_s;

// -- plots -------------------------------------------------------------------------------------
const plots=$("figure.plot").map(fig=>{
 const area=fig.querySelector(".area"),svg=fig.querySelector("svg.view"),data=fig.querySelector("script.data");
 const box=svg.viewBox.baseVal;
 const marks=fig.querySelector(".marks svg");
 const title=svg.querySelector("title");if(title)title.remove();
 return{fig,area,svg,marks,wide:box.width,deep:box.height,timed:fig.classList.contains("timed"),
  data:data?JSON.parse(data.textContent):null,over:fig.querySelector(".over"),cursor:null};
});
function ticks(p){
 const width=p.area.clientWidth||600,most=Math.max(2,Math.floor(width/80)),a=time(from),b=time(to);
 const step=STEPS.find(s=>(b-a)/s<=most)||(b-a);
 const grid=p.fig.querySelector(".grid"),xs=p.fig.querySelector(".xs");
 const scroll=p.fig.querySelector(".scroll"),bar=scroll.offsetWidth-scroll.clientWidth+"px";
 xs.style.marginRight=bar;if(p.marks)p.marks.parentNode.style.marginRight=bar;
 grid.textContent="";xs.textContent="";
 for(let t=Math.max(0,Math.ceil(a/step-1e-9)*step);t<=b+1e-9;t+=step){
  const left=(100*(t-a)/(b-a))+"%";
  const line=el("b");line.style.left=left;grid.append(line);
  const text=el("span",span(Math.round(t*10)/10));text.style.left=left;xs.append(text);
 }
}
function draw(){
 for(const p of plots){
  if(!p.timed)continue;
  p.svg.setAttribute("viewBox",`${from} 0 ${Math.max(1,to-from)} ${p.deep}`);
  if(p.marks)p.marks.setAttribute("viewBox",`${from} 0 ${Math.max(1,to-from)} 1`);
  ticks(p);
  if(p.data&&p.data.kind==="gantt")names(p);
 }
 const all=from<=0&&to>=run.wide;
 const range=doc.getElementById("range"),lens=doc.querySelector("#mini i");
 if(range)range.textContent=all?"whole run, "+span(run.seconds):span(time(from))+" to "+span(time(to));
 if(lens){lens.style.left=100*from/run.wide+"%";lens.style.width=100*(to-from)/run.wide+"%";lens.hidden=all}
}
function zoom(a,b){
 const least=Math.min(run.wide,Math.max(2,run.per_s*.05));
 if(b-a<least){const m=(a+b)/2;a=m-least/2;b=m+least/2}
 if(a<0){b-=a;a=0}
 if(b>run.wide){a=Math.max(0,a-(b-run.wide));b=run.wide}
 from=Math.max(0,a);to=b;draw();
}
const around=(x,k)=>zoom(x-(x-from)*k,x+(to-x)*k);
// labels on bars: placed anew for what is seen
function names(p){
 const W=p.area.clientWidth,H=p.area.clientHeight,d=p.data,over=p.over;over.textContent="";
 const found=[];
 for(let i=0,n=0;i<d.bars.length;i+=6,n++){
  const job=jobsAt(p)[d.bars[i+4]];if(!job)continue;
  const a=Math.max(from,d.bars[i+2]),b=Math.min(to,d.bars[i+2]+d.bars[i+3]);if(b<=a)continue;
  const w=(b-a)/(to-from)*W,h=d.bars[i+1]/p.deep*H,name=job[0].slice(job[0].indexOf("/")+1);
  if(h>=12&&w>=6.2*name.length+6)found.push([w*h,i,n,a,b,name,!picked||p.data.jobs||chosen(d.bars[i+4],job)]);
 }
 found.sort((x,y)=>y[0]-x[0]||x[1]-y[1]);
 for(const[,i,n,a,b,name,on]of found.slice(0,500)){
  const look=d.looks[d.look[n]].split(" "),e=el("span",name,on?"t"+look[0].slice(1)+" "+look[1]:"out");
  e.style.left=100*(a-from)/(to-from)+"%";e.style.width=100*(b-a)/(to-from)+"%";
  e.style.top=100*(d.bars[i]+d.bars[i+1]/2)/p.deep+"%";over.append(e);
 }
}

// -- pointing ----------------------------------------------------------------------------------
const tip=el("div");tip.id="tip";tip.hidden=true;tip.setAttribute("role","status");doc.body.append(tip);
const list=pairs=>{const dl=el("dl");for(const[k,v]of pairs){dl.append(el("dt",k),el("dd",v))}return dl};
function barAt(p,x,y){
 const d=p.data;
 for(let i=d.bars.length-6;i>=0;i-=6)
  if(y>=d.bars[i]&&y<d.bars[i]+d.bars[i+1]&&x>=d.bars[i+2]&&x<=d.bars[i+2]+d.bars[i+3])return i;
 return-1;
}
function near(x){
 const reach=(to-from)*.006,out=[];
 for(const[at,text]of run.acts)if(Math.abs(at-x)<=reach&&out.length<4)out.push(span(time(at))+" "+text);
 return out;
}
function jobsAt(p){return p.data.jobs||run.jobs}
function tell(p,x,y){
 tip.textContent="";
 const d=p.data;
 if(!d)return false;
 if(d.kind==="steps"){
  let low=0,high=d.x.length-1;
  while(low<high){const m=(low+high+1)>>1;if(d.x[m]<=x)low=m;else high=m-1}
  tip.append(el("b",span(time(x))));
  tip.append(list(d.names.map((n,i)=>[n,num(d.rows[i][low])+(d.unit==="%"?" %":"")])));
  if(d.unit!=="%")tip.append(el("p",d.unit));
  for(const line of near(x))tip.append(el("p",line));
  return true;
 }
 if(d.kind==="gantt"){
  const row=Math.floor(y/d.row),i=barAt(p,x,y);
  let where="";
  for(let n=0;n<d.nodes.length;n+=3)if(row>=d.nodes[n+1]&&row<d.nodes[n+1]+d.nodes[n+2])where=d.nodes[n]+" / "+(row-d.nodes[n+1]);
  if(i<0){let how="free";
   for(let n=0;n<d.down.length;n+=4)if(x>=d.down[n]&&x<=d.down[n]+d.down[n+2]&&y>=d.down[n+1]&&y<d.down[n+1]+d.down[n+3])how="node not usable";
   tip.append(el("b",where),el("p",span(time(x))+", "+how));return true}
  const job=jobsAt(p)[d.bars[i+4]],a=time(d.bars[i+2]),b=a+time(d.bars[i+3]);
  tip.append(el("b",job?job[0]:"unknown job"));
  const pairs=[["on",where],["queue",job?(p.data.queues||run.queues)[job[1]]||"(none)":""],["held",span(a)+" to "+span(b)],["for",span(b-a)]];
  if(job){
   pairs.push(["made",span(job[3])]);
   if(job[4]!==null)pairs.push(["waited",span(job[4]-job[3])]);
   pairs.push(["pods",num(job[2])],["end",d.bars[i+5]?"evicted here":job[6]||"still there"]);
  }
  tip.append(list(pairs));
  for(const line of near(x))tip.append(el("p",line));
  return true;
 }
 if(d.kind==="shares"){
  const share=x/d.wide,t=d.ticks,at=t.log?Math.expm1(share*t.whole):share*t.whole;
  tip.append(el("b","waited at most "+span(at)));
  tip.append(list(Object.keys(d.lines).sort().map(n=>{
   const[xs,ys]=d.lines[n];let v=0;for(let i=0;i<xs.length&&xs[i]<=x;i++)v=ys[i];return[n,num(v)+" %"]})));
  return true;
 }
 return false;
}
function place(cx,cy){
 const w=tip.offsetWidth,h=tip.offsetHeight,W=innerWidth,H=innerHeight;
 tip.style.left=Math.max(4,cx+16+w>W?cx-w-16:cx+16)+"px";
 tip.style.top=Math.max(4,Math.min(cy+14,H-h-6))+"px";
}
function cross(x){
 for(const p of plots){
  if(!p.timed)continue;
  if(x===null){if(p.cursor){p.cursor.remove();p.cursor=null}continue}
  if(!p.cursor){p.cursor=el("div",undefined,"hair2");p.area.append(p.cursor)}
  p.cursor.style.left=100*(x-from)/(to-from)+"%";
 }
}
function spot(p,e){
 const r=p.area.getBoundingClientRect(),u=Math.min(1,Math.max(0,(e.clientX-r.left)/r.width));
 return[p.timed?from+u*(to-from):u*p.wide,(e.clientY-r.top)/r.height*p.deep,u];
}
const hide=()=>{tip.hidden=true;cross(null)};
for(const p of plots){
 let down=null,brush=null,key=null;
 p.area.addEventListener("pointermove",e=>{
  const[x,y]=spot(p,e);
  if(down!==null&&p.timed&&Math.abs(e.clientX-down.px)>4){
   if(!brush){brush=el("div",undefined,"brush");p.area.append(brush);p.area.setPointerCapture(e.pointerId)}
   const a=Math.min(down.x,x),b=Math.max(down.x,x);
   brush.style.left=100*(a-from)/(to-from)+"%";brush.style.width=100*(b-a)/(to-from)+"%";
  }
  if(p.timed)cross(x);
  tip.hidden=!tell(p,x,y);if(!tip.hidden)place(e.clientX,e.clientY);
 });
 p.area.addEventListener("pointerdown",e=>{if(e.button===0)down={px:e.clientX,x:spot(p,e)[0]}});
 p.area.addEventListener("pointerup",e=>{
  if(!down)return;
  const[x,y]=spot(p,e);
  if(brush){brush.remove();brush=null;zoom(Math.min(down.x,x),Math.max(down.x,x))}
  else if(p.data&&p.data.kind==="gantt"&&!p.data.jobs){const i=barAt(p,x,y);pick(i<0?null:{job:p.data.bars[i+4]})}
  down=null;
 });
 p.area.addEventListener("pointercancel",()=>{down=null;if(brush){brush.remove();brush=null}});
 p.area.addEventListener("pointerleave",()=>{if(!brush){down=null;hide()}});
 p.area.addEventListener("dblclick",()=>{if(p.timed)zoom(0,run.wide)});
 p.area.addEventListener("blur",()=>{key=null;hide()});
 p.area.addEventListener("keydown",e=>{
  const wide=p.timed?to-from:p.wide,low=p.timed?from:0;
  if(key===null)key={x:low+wide/2,y:p.deep/2};
  const rows=p.data&&p.data.kind==="gantt"?p.data.row:0;
  switch(e.key){
   case"ArrowLeft":key.x=Math.max(low,key.x-wide/100);break;
   case"ArrowRight":key.x=Math.min(low+wide,key.x+wide/100);break;
   case"ArrowUp":if(!rows)return;key.y=Math.max(rows/2,key.y-rows);break;
   case"ArrowDown":if(!rows)return;key.y=Math.min(p.deep-rows/2,key.y+rows);break;
   case"+":if(p.timed)around(key.x,.5);break;
   case"-":if(p.timed)around(key.x,2);break;
   case"0":if(p.timed)zoom(0,run.wide);break;
   case"Enter":if(rows&&!p.data.jobs){const i=barAt(p,key.x,key.y);if(i>=0)pick({job:p.data.bars[i+4]})}break;
   case"Escape":pick(null);hide();return;
   default:return;
  }
  e.preventDefault();
  if(p.timed)cross(key.x);
  tip.hidden=!tell(p,key.x,key.y);
  const r=p.area.getBoundingClientRect(),u=p.timed?(key.x-from)/(to-from):key.x/p.wide;
  if(!tip.hidden)place(r.left+u*r.width,r.top+(rows?key.y/p.deep*r.height:20));
 });
}

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
})();
